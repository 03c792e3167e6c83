// The address: behind its # is what the page shows and selects, so a link restores it and the browser's back button returns to it
const WHOLE = /^[0-9]+$/;
const rowOfId = new Map(), countOfNumber = new Map();
const rowIds = numbers.map((number, row) => { // the parts of a document share its number: 7, 7.2, 7.3
  const count = (countOfNumber.get(number) || 0) + 1, id = number + (count > 1 ? '.' + count : '');
  countOfNumber.set(number, count);
  rowOfId.set(id, row);
  return id;
});
const formatRows = rows => {
  const spans = [];
  rows.map(row => rowIds[row]).forEach(id => {
    const last = spans[spans.length - 1];
    if (last && WHOLE.test(id) && WHOLE.test(last[1]) && Number(id) === Number(last[1]) + 1) last[1] = id; else spans.push([id, id]);
  });
  return spans.map(([first, last]) => first === last ? first : first + '-' + last).join(',');
};
const parseRows = text => {
  const rows = text.split(',').flatMap(span => {
    const [first, last] = span.split('-');
    if (last === undefined) return rowOfId.has(first) ? [rowOfId.get(first)] : [];
    return everyRow.filter(row => WHOLE.test(rowIds[row]) && Number(rowIds[row]) >= Number(first) && Number(rowIds[row]) <= Number(last));
  });
  return [...new Set(rows)].sort((a, b) => a - b);
};
const describeAddress = () => {
  const values = new URLSearchParams(), isMap = shownTab < views.length;
  const area = isMap ? !drawer.hidden && drawerArea : shownTab === textsTab && selection;
  if (isMap) {
    const { colours, category } = maps[shownTab].getSelection();
    if (colours !== shownTab) values.set('colours', colours + 1);
    if (category >= 0) values.set('group', category + 1);
  } else if (shownTab === textsTab) {
    selects.forEach((select, i) => { if (select.value !== '') values.set('filter-' + (i + 1), Number(select.value) + 1); });
    if (area && !area.label) values.set('map', area.view + 1);
  }
  if (area && area.rows.length) values.set('rows', formatRows(area.rows));
  if (search.value.trim()) values.set('search', search.value.trim());
  return ['#' + panels[shownTab].id, ...[String(values).replaceAll('%2C', ',')].filter(Boolean)].join('&');
};
let address = '';
const writeAddress = replaces => {
  const current = describeAddress();
  if (current === address) return;
  address = current;
  history[replaces ? 'replaceState' : 'pushState'](null, '', current);
};
const readAddress = () => {
  const [tab, ...pairs] = location.hash.split('&'), values = new URLSearchParams(pairs.join('&'));
  const index = Math.max(0, tabs.findIndex(each => each.hash === tab)), rows = parseRows(values.get('rows') || '');
  const read = (name, count) => WHOLE.test(values.get(name)) && values.get(name) <= count ? values.get(name) - 1 : -1;
  closeDrawer();
  clear();
  search.value = values.get('search') || '';
  if (index === textsTab) {
    selects.forEach((select, i) => { select.selectedIndex = read('filter-' + (i + 1), select.options.length - 1) + 1; });
    if (rows.length) selection = { view: Math.max(0, read('map', views.length)), rows, label: values.has('map') ? '' : countLabel(rows.length, 'row') };
  }
  openTab(index);
  applyFilters();
  if (index < views.length) {
    const colours = read('colours', dimensions.length);
    maps[index].select(colours < 0 ? index : colours, read('group', Infinity));
    if (rows.length) {
      openDrawer(index, rows, rows.length, maps[index].plane);
      maps[index].mark(rows, false);
    }
  }
  address = describeAddress();
};
['click', 'change', 'keydown', 'pointerup'].forEach(kind => document.addEventListener(kind, () => writeAddress(false)));
search.addEventListener('input', () => writeAddress(address.includes('search=')));
addEventListener('hashchange', readAddress);
readAddress();
