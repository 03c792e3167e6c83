// The drawer: the whole text of a place on the map, or the texts of an area and what they have in common
const drawer = find('.drawer'), LISTED = 30, LISTED_CATEGORIES = 4;
let drawerSource = null, drawerArea = null;

const closeDrawer = () => {
  if (drawer.hidden) return;
  drawer.hidden = true;
  maps[drawerArea.view].markFound();
  findAll('.lasso').forEach(line => line.setAttribute('d', ''));
  if (drawer.contains(document.activeElement) || document.activeElement === document.body) drawerSource.focus({ preventScroll: true });
};
const describeRow = row => {
  const list = element('dl', '');
  dimensions.forEach((kind, i) => {
    const value = element('dd', '');
    if (i < views.length) value.append(groupLabel(i, kind.categoryOf[row]));
    else value.textContent = categoryName(kind, row) || '–';
    const answer = i < views.length && (views[i].answers[row] ? '“' + views[i].answers[row] + '”' : views[i].answered && 'no answer');
    if (answer) value.append(element('p', answer, 'answer'));
    const second = i < views.length ? views[i].second[row] : -1;
    if (second >= 0 && second !== kind.categoryOf[row]) value.append(element('p', 'between this ' + find('.group-count', panels[i]).dataset.unit + ' and “' + kind.names[second] + '”'));
    value.dir = 'auto';
    list.append(element('dt', kind.title), value);
  });
  return list;
};
const countCategories = (kind, rows) => {
  const counts = kind.names.map(() => 0);
  rows.forEach(row => { if (kind.categoryOf[row] >= 0) counts[kind.categoryOf[row]]++; });
  return counts;
};
const describeArea = rows => {
  const list = element('dl', '');
  dimensions.forEach((kind, i) => {
    const value = element('dd', ''), inArea = countCategories(kind, rows), inAll = countCategories(kind, everyRow);
    const largest = inArea.map((_, category) => category).sort((a, b) => inArea[b] - inArea[a]).filter(category => inArea[category]);
    largest.slice(0, LISTED_CATEGORIES).forEach(category => {
      const line = element('p', '');
      line.append(i < views.length ? groupLabel(i, category) : kind.names[category],
        element('small', ' ' + percent(inArea[category] / rows.length) + ' (of all texts ' + percent(inAll[category] / texts.length) + ')'));
      line.dir = 'auto';
      value.append(line);
    });
    list.append(element('dt', kind.title), value);
  });
  return list;
};
const offerMove = (view, rows, reopen) => {
  const select = find('.move-to', drawer), edits = groupEdits[view], { categoryOf, names } = dimensions[view];
  const groups = edits.listGroups().filter(i => rows.some(row => categoryOf[row] !== i));
  select.parentElement.hidden = !groups.length;
  select.replaceChildren(new Option('…', ''), ...groups.map(i => new Option(groupNumber(view, i) + ' ' + names[i], i)));
  select.previousElementSibling.textContent = rows.length > 1 ? 'Move these ' + countLabel(rows.length, 'text') + ' to ' : 'Move to ';
  select.onchange = () => {
    const into = Number(select.value), moved = edits.move(rows, into);
    reopen();
    find('.drawer-note', drawer).textContent = countLabel(moved, 'text') + ' moved to “' + names[into] + '”.' + (moved > rows.length ? ' Equal texts move together.' : '');
  };
  const button = find('.save-moves', drawer);
  button.hidden = !edits.isChanged();
  button.onclick = edits.save;
};
const openDrawer = (view, rows, count, source) => {
  const content = find('.drawer-content', drawer), isOne = rows.length === 1;
  const quotes = element('ul', '', 'quotes');
  rows.slice(0, LISTED).forEach(row => { const line = element('li', texts[row]); line.dir = 'auto'; quotes.append(line); });
  content.replaceChildren(...(isOne ? [quotes, describeRow(rows[0])] : rows.length ? [describeArea(rows), quotes] : []));
  find('h3', drawer).textContent = isOne && count === 1 ? 'Row ' + numbers[rows[0]] : countLabel(count, 'text');
  find('.drawer-note', drawer).textContent = rows.length < count ? 'This page holds ' + (rows.length || 'none') + ' of them.'
    : rows.length > LISTED ? 'The first ' + LISTED + ' are listed.' : '';
  const button = find('.open-area', drawer);
  button.hidden = !rows.length;
  button.onclick = () => { drawer.hidden = true; maps[view].markFound(); openTexts([], source, { view, rows }); };
  offerMove(view, rows, () => openDrawer(view, rows, count, source));
  maps[view].markFound();
  drawerArea = { view, rows };
  drawerSource = source;
  drawer.hidden = false;
  drawer.scrollTop = 0;
  drawer.focus({ preventScroll: true });
  if (drawer.offsetWidth === innerWidth) source.scrollIntoView({ block: 'start' }); // the map above the drawer of a narrow window
};
find('.close', drawer).addEventListener('click', closeDrawer);
drawer.addEventListener('keydown', event => { if (event.key === 'Escape') closeDrawer(); });
tabs.forEach(tab => tab.addEventListener('click', closeDrawer));
