// The page's data and what all parts use; then the tabs. The parts are joined in one function and share its names.
const data = JSON.parse(document.getElementById('data').textContent);
const { dimensions, views, tables, texts, numbers } = data;
const findAll = (selector, root = document) => [...root.querySelectorAll(selector)];
const find = (selector, root = document) => root.querySelector(selector);
const element = (tag, text, className) => {
  const node = document.createElement(tag);
  node.textContent = text;
  if (className) node.className = className;
  return node;
};
const countLabel = (number, word) => number.toLocaleString('en') + ' ' + (number === 1 ? word : word.replace(/y$/, 'ie') + 's');
const percent = share => (share > 0 && share < 0.005 ? '<1' : Math.round(100 * share)) + '%';
const groupNumber = (view, number) => dimensions[view].colours[number] === 'none' ? '' : number + 1; // texts that fit no group have no number
const groupLabel = (view, number) => {
  const line = element('span', '', 'group-label c' + dimensions[view].colours[number]);
  line.append(element('b', groupNumber(view, number)), ' ' + dimensions[view].names[number]);
  line.dir = 'auto';
  return line;
};
const categoryName = (kind, row) => kind.categoryOf[row] < 0 ? '' : kind.names[kind.categoryOf[row]];
const saveFile = (parts, type, name) => {
  const link = element('a', '');
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
};
document.documentElement.classList.add('js');

// Tabs
const tabs = findAll('.tab'), panels = tabs.map(tab => document.getElementById(tab.hash.slice(1)));
let shownTab = 0;
const openTab = (index, focus) => {
  shownTab = index;
  tabs.forEach((tab, i) => {
    tab.setAttribute('aria-selected', i === index);
    tab.tabIndex = i === index ? 0 : -1;
    panels[i].hidden = i !== index;
  });
  if (focus) tabs[index].focus();
  tabs[index].scrollIntoView({ block: 'nearest', inline: 'nearest', behavior: 'instant' });
};
tabs[0].parentElement.setAttribute('role', 'tablist');
tabs.forEach((tab, index) => {
  tab.setAttribute('role', 'tab');
  tab.setAttribute('aria-controls', panels[index].id);
  panels[index].setAttribute('role', 'tabpanel');
  panels[index].setAttribute('aria-labelledby', tab.id);
  tab.addEventListener('click', event => { event.preventDefault(); openTab(index); });
  tab.addEventListener('keydown', event => {
    const last = tabs.length - 1;
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: last }[event.key];
    if (event.key === ' ') { event.preventDefault(); openTab(index); }
    if (to === undefined) return;
    event.preventDefault();
    openTab(to < 0 ? last : to > last ? 0 : to, true);
  });
});
openTab(0);

addEventListener('beforeprint', () => findAll('details').forEach(details => { details.open = true; }));
document.documentElement.dataset.dots = findAll('.dots > *').length;
