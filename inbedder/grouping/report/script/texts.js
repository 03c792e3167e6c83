// Texts: filters, list, download
const PAGE = 50;
const search = find('.search'), selects = findAll('.filters select'), body = find('.rows tbody'), moreButton = find('.next'), backButton = find('.back');
const textsTab = tabs.length - 1;
let matches = [], found = null, listedCount = 0, selection = null, returnPoint = null, lowercaseTexts = null;

const cell = (row, view) => {
  const node = element('td', '');
  node.append(groupLabel(view, dimensions[view].categoryOf[row]));
  if (views[view].shares.length) node.append(element('p', 'Whole document: ' + views[view].shares[row], 'shares'));
  if (views[view].answers[row]) {
    const answer = element('p', '“' + views[view].answers[row] + '”', 'answer');
    answer.dir = 'auto';
    node.append(answer);
  }
  return node;
};
const listMore = () => {
  const fragment = document.createDocumentFragment();
  for (const row of matches.slice(listedCount, listedCount + PAGE)) {
    const line = document.createElement('tr'), text = element('td', texts[row]), number = element('th', numbers[row]);
    number.scope = 'row';
    text.dir = 'auto';
    line.append(number, text, ...views.map((_, view) => cell(row, view)));
    line.append(...dimensions.slice(views.length).map(kind => element('td', categoryName(kind, row))));
    fragment.append(line);
  }
  listedCount = Math.min(matches.length, listedCount + PAGE);
  body.append(fragment);
  moreButton.hidden = listedCount === matches.length;
  moreButton.textContent = 'Show ' + Math.min(PAGE, matches.length - listedCount) + ' more';
};
const everyRow = texts.map((_, row) => row);
const findWords = () => { // the rows whose texts or answers have all words of the search; null without a search
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  lowercaseTexts ||= texts.map((text, row) => [text, ...views.map(view => view.answers[row])].join('\n').toLowerCase());
  return everyRow.filter(row => words.every(word => lowercaseTexts[row].includes(word)));
};
const applyFilters = () => {
  const categories = selects.map(select => select.value === '' ? -1 : Number(select.value)), inArea = selection && new Set(selection.rows);
  found = findWords();
  maps.forEach(map => map.markFound());
  matches = (found || everyRow).filter(row => (!inArea || inArea.has(row))
    && categories.every((category, i) => category < 0 || dimensions[i].categoryOf[row] === category));
  listedCount = 0;
  body.replaceChildren();
  listMore();
  const filters = selects.flatMap((select, i) => categories[i] < 0 ? [] : [dimensions[i].title + ' “' + select.selectedOptions[0].text + '”']);
  if (selection) filters.push(selection.label || (new Set(selection.rows.map(row => views[selection.view].markOf[row])).size === 1 ? 'one place' : 'an area') + ' on the map of ' + views[selection.view].question);
  if (found) filters.push('with “' + search.value.trim() + '”');
  find('.match-count').textContent = matches.length.toLocaleString('en') + ' of ' + countLabel(texts.length, 'text')
    + (filters.length ? ' — ' + filters.join(' · ') : '');
  selects.forEach((select, i) => select.classList.toggle('chosen', categories[i] >= 0));
  find('.clear').disabled = !filters.length;
  find('.download').disabled = !matches.length;
};
const clear = () => { selects.forEach(select => { select.value = ''; }); search.value = ''; selection = null; };
const openTexts = (categories, source, area, words = '') => {
  clear();
  search.value = words;
  for (const [dimension, category] of categories) selects[dimension].value = category;
  selection = area || null;
  returnPoint = { tab: shownTab, source };
  backButton.textContent = 'Back to ' + (shownTab < views.length ? 'the question' : tabs[shownTab].textContent.trim().toLowerCase());
  backButton.hidden = false;
  applyFilters();
  openTab(textsTab);
  find('#heading-texts').focus();
  scrollTo({ top: 0, behavior: 'instant' });
};
selects.forEach(select => select.addEventListener('change', applyFilters));
search.addEventListener('input', () => { if (shownTab !== textsTab && shownTab >= views.length) { selection = null; openTab(textsTab); } applyFilters(); });
search.addEventListener('keydown', event => {
  if (event.key === 'Escape') { search.value = ''; applyFilters(); }
  if (event.key === 'Enter' && found && shownTab !== textsTab) openTexts([], search, null, search.value);
});
moreButton.addEventListener('click', () => { const first = listedCount; listMore(); const line = body.rows[first]; line.tabIndex = -1; line.focus(); });
find('.clear').addEventListener('click', () => { clear(); applyFilters(); find('#heading-texts').focus(); });
backButton.addEventListener('click', () => {
  openTab(returnPoint.tab);
  returnPoint.source.focus();
  returnPoint.source.scrollIntoView({ block: 'center', behavior: 'instant' });
  backButton.hidden = true;
});
const numberPattern = new RegExp('^(?:' + data.csv.number + ')$');
const quoteForCsv = value => {
  const cell = String(value);
  const start = cell.replace(/^'+/, '')[0];
  const isFormula = start && data.csv.formulaStarts.includes(start) && !numberPattern.test(cell);
  const text = isFormula ? "'" + cell : cell; // keep spreadsheets from running it
  return [...data.csv.quotedCharacters].some(character => text.includes(character)) ? '"' + text.replaceAll('"', '""') + '"' : text;
};
find('.download').addEventListener('click', () => {
  const header = ['row', 'text'];
  views.forEach(view => header.push(view.question + ' (number)', view.question + ' (group)', view.question + ' (answer)'));
  header.push(...dimensions.slice(views.length).map(kind => kind.title));
  const lines = matches.map(row => [
    numbers[row], texts[row],
    ...views.flatMap((view, i) => [groupNumber(i, dimensions[i].categoryOf[row]), categoryName(dimensions[i], row), view.answers[row]]),
    ...dimensions.slice(views.length).map(kind => categoryName(kind, row)),
  ]);
  const content = [header, ...lines].map(line => line.map(quoteForCsv).join(',') + '\r\n').join('');
  saveFile(['\ufeff', content], 'text/csv;charset=utf-8', 'texts.csv');
});
findAll('.open').forEach(button => button.addEventListener('click', () => openTexts([[button.dataset.dimension, button.dataset.category]], button)));
