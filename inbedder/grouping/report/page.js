(() => {
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
  const countLabel = (number, word) => number.toLocaleString('en') + ' ' + word + (number === 1 ? '' : 's');
  const percent = share => (share > 0 && share < 0.005 ? '<1' : Math.round(100 * share)) + '%';
  const groupNumber = (view, number) => views[view].colours[number] === 'none' ? '' : number + 1; // texts that fit no group have no number
  const groupLabel = (view, number) => {
    const line = element('span', '', 'group-label c' + views[view].colours[number]);
    line.append(element('b', groupNumber(view, number)), ' ' + dimensions[view].names[number]);
    line.dir = 'auto';
    return line;
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
  openTab(Math.max(0, tabs.findIndex(tab => tab.hash === location.hash)));

  // Texts: filters, list, download
  const PAGE = 50;
  const search = find('.search'), selects = findAll('.filters select'), body = find('.rows tbody'), moreButton = find('.next'), backButton = find('.back');
  const textsTab = tabs.length - 1;
  let matches = [], listedCount = 0, selectedMark = null, returnPoint = null, lowercaseTexts = null;

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
  const categoryName = (kind, row) => kind.categoryOf[row] < 0 ? '' : kind.names[kind.categoryOf[row]];
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
  const applyFilters = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const categories = selects.map(select => select.value === '' ? -1 : Number(select.value));
    if (words.length && !lowercaseTexts) lowercaseTexts = texts.map((text, row) => [text, ...views.map(view => view.answers[row])].join('\n').toLowerCase());
    matches = [];
    for (let row = 0; row < texts.length; row++) {
      if (categories.every((category, i) => category < 0 || dimensions[i].categoryOf[row] === category)
        && (!selectedMark || views[selectedMark.view].markOf[row] === selectedMark.mark)
        && words.every(word => lowercaseTexts[row].includes(word))) matches.push(row);
    }
    listedCount = 0;
    body.replaceChildren();
    listMore();
    const filters = selects.flatMap((select, i) => categories[i] < 0 ? [] : [dimensions[i].title + ' “' + select.selectedOptions[0].text + '”']);
    if (selectedMark) filters.push('one place on the map of ' + views[selectedMark.view].question);
    if (words.length) filters.push('with “' + search.value.trim() + '”');
    find('.match-count').textContent = matches.length.toLocaleString('en') + ' of ' + countLabel(texts.length, 'text')
      + (filters.length ? ' — ' + filters.join(' · ') : '');
    selects.forEach((select, i) => select.classList.toggle('chosen', categories[i] >= 0));
    find('.clear').disabled = !filters.length;
    find('.download').disabled = !matches.length;
  };
  const clear = () => { selects.forEach(select => { select.value = ''; }); search.value = ''; selectedMark = null; };
  const openTexts = (categories, source, mark) => {
    clear();
    for (const [dimension, category] of categories) selects[dimension].value = category;
    selectedMark = mark || null;
    returnPoint = { tab: shownTab, source };
    backButton.textContent = 'Back to ' + (shownTab < views.length ? 'the question' : tabs[shownTab].textContent.trim().toLowerCase());
    backButton.hidden = false;
    applyFilters();
    openTab(textsTab);
    find('#heading-texts').focus();
    scrollTo({ top: 0, behavior: 'instant' });
  };
  selects.forEach(select => select.addEventListener('change', applyFilters));
  search.addEventListener('input', () => { if (shownTab !== textsTab) { selectedMark = null; openTab(textsTab); } applyFilters(); });
  search.addEventListener('keydown', event => { if (event.key === 'Escape') { search.value = ''; applyFilters(); } });
  moreButton.addEventListener('click', () => { const first = listedCount; listMore(); const line = body.rows[first]; line.tabIndex = -1; line.focus(); });
  find('.clear').addEventListener('click', () => { clear(); applyFilters(); find('#heading-texts').focus(); });
  backButton.addEventListener('click', () => {
    openTab(returnPoint.tab);
    returnPoint.source.focus();
    returnPoint.source.scrollIntoView({ block: 'center', behavior: 'instant' });
    backButton.hidden = true;
  });
  const saveFile = (parts, type, name) => {
    const link = element('a', '');
    link.href = URL.createObjectURL(new Blob(parts, { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };
  const numberPattern = new RegExp('^(?:' + data.csv.number + ')$');
  const quoteForCsv = value => {
    const cell = String(value);
    const isFormula = cell && data.csv.formulaStarts.includes(cell[0]) && !numberPattern.test(cell);
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
  applyFilters();

  // Maps
  findAll('.map').forEach((map, index) => {
    const view = views[index], marks = view.marks, names = dimensions[index].names;
    const plane = find('.plane', map), svg = find('svg', plane), ring = find('.ring', svg);
    const tip = find('.tip', plane), shapes = find('.dots', svg).children, buttons = findAll('.legend button', map);
    const order = marks.map((_, i) => i).sort((a, b) => marks[a][2] - marks[b][2] || marks[a][0] - marks[b][0]);
    let current = -1, isolatedGroup = -1, rowsOfMark = null;
    const isShown = i => isolatedGroup < 0 || marks[i][2] === isolatedGroup;
    const rowsAt = mark => {
      if (!rowsOfMark) {
        rowsOfMark = marks.map(() => []);
        view.markOf.forEach((mark, row) => rowsOfMark[mark].push(row));
      }
      return rowsOfMark[mark];
    };
    const hide = () => { current = -1; tip.hidden = true; ring.setAttribute('r', 0); };
    const describe = i => {
      const markRows = rowsAt(i), lines = [groupLabel(index, marks[i][2])];
      if (marks[i][3] > 1) lines.push(element('p', countLabel(marks[i][3], 'text') + ' here' + (markRows.length ? ', such as' : '')));
      if (!markRows.length && marks[i][3] === 1) lines.push(element('p', 'This text is not in the sample that this page holds.'));
      markRows.slice(0, marks[i][3] > 1 ? 3 : 1).forEach(row => {
        const text = texts[row], short = element('p', text.length > 200 ? text.slice(0, 199) + '…' : text);
        const answer = element('p', '“' + view.answers[row] + '”', 'answer');
        short.dir = answer.dir = 'auto';
        lines.push(short, ...(view.answers[row] ? [answer] : []));
      });
      if (marks[i][3] === 1 && markRows.length) views.forEach((other, j) => {
        if (j === index) return;
        const line = element('p', other.question + ' ', 'other');
        line.append(groupLabel(j, dimensions[j].categoryOf[markRows[0]]));
        lines.push(line);
      });
      return lines;
    };
    const show = i => {
      if (i === current) return;
      current = i;
      const [x, y] = marks[i];
      tip.replaceChildren(...describe(i));
      tip.hidden = false;
      ring.setAttribute('cx', x); ring.setAttribute('cy', y); ring.setAttribute('r', 9);
      const scale = svg.clientWidth / svg.viewBox.baseVal.width, width = tip.offsetWidth, height = tip.offsetHeight;
      const above = y * scale - height - 14;
      tip.style.left = Math.max(0, Math.min(x * scale - width / 2, plane.clientWidth - width)) + 'px';
      tip.style.top = (above > -60 ? above : y * scale + 14) + 'px';
    };
    const nearest = (event, reach) => {
      const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
      const px = (event.clientX - box.left) / scale, py = (event.clientY - box.top) / scale;
      let best = -1, smallest = (reach / scale) ** 2;
      marks.forEach(([x, y], i) => {
        const distance = (x - px) ** 2 + (y - py) ** 2;
        if (distance < smallest && isShown(i)) { best = i; smallest = distance; }
      });
      return best;
    };
    const point = (event, reach) => { const i = nearest(event, reach); if (i < 0) hide(); else show(i); };
    const openMark = i => openTexts([[index, marks[i][2]]], plane, { view: index, mark: i });
    svg.addEventListener('pointermove', event => { if (event.pointerType === 'mouse') point(event, 14); });
    svg.addEventListener('pointerleave', event => { if (event.pointerType === 'mouse') hide(); });
    svg.addEventListener('click', event => { point(event, 28); if (event.detail > 1 && current >= 0) openMark(current); });
    plane.addEventListener('focus', () => { if (plane.matches(':focus-visible') && current < 0) show(order.find(isShown)); });
    plane.addEventListener('blur', hide);
    document.addEventListener('pointerdown', event => { if (!plane.contains(event.target)) hide(); });
    plane.addEventListener('keydown', event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === 'Escape') hide();
      if (event.key === 'Enter' && current >= 0) openMark(current);
      if (!step) return;
      event.preventDefault();
      const path = order.filter(isShown), skipsGroup = event.key === 'ArrowDown' || event.key === 'ArrowUp';
      let position = current < 0 ? (step > 0 ? -1 : path.length) : path.indexOf(current);
      do position += step; while (skipsGroup && current >= 0 && position in path && marks[path[position]][2] === marks[current][2]);
      if (position in path) show(path[position]);
    });
    buttons.forEach((button, number) => button.addEventListener('click', () => {
      isolatedGroup = isolatedGroup === number ? -1 : number;
      hide();
      buttons.forEach((other, i) => other.setAttribute('aria-pressed', i === isolatedGroup));
      svg.classList.toggle('isolated', isolatedGroup >= 0);
      marks.forEach((mark, i) => shapes[i].classList.toggle('lit', mark[2] === isolatedGroup));
    }));
  });

  // Changes of the groups
  findAll('.cards').forEach((cards, view) => {
    const names = dimensions[view].names, panel = panels[view], bar = find('.changes', panel), articles = findAll('article', cards);
    const legend = findAll('.legend li', panel), shapes = find('.dots', panel).children;
    const mergedInto = names.map((_, i) => i), newNames = {};
    const setName = (i, name) => {
      names[i] = name;
      find('h3', articles[i]).textContent = find('bdi', legend[i]).textContent = name;
      const option = find('option[value="' + i + '"]', selects[view]);
      if (option) option.textContent = groupNumber(view, i) + ' ' + name;
    };
    const fillSelects = () => findAll('.merge', cards).forEach(select => {
      const own = articles.indexOf(select.closest('article'));
      select.replaceChildren(new Option('…', ''), ...names.flatMap((name, i) =>
        i === own || mergedInto[i] !== i || views[view].colours[i] === 'none' ? [] : [new Option(groupNumber(view, i) + ' ' + name, i)]));
    });
    const reportChanges = () => {
      const merges = mergedInto.filter((into, i) => into !== i).length, renames = Object.keys(newNames).length;
      bar.hidden = !merges && !renames;
      find('span', bar).textContent = [merges && countLabel(merges, 'group') + ' merged', renames && countLabel(renames, 'group') + ' renamed']
        .filter(Boolean).join(', ') + '. Cross tables and charts stay as they were.';
      fillSelects();
      applyFilters();
    };
    const rename = (i, name) => {
      const line = name.replace(/\s+/g, ' ').trim();
      if (!line || line === names[i] || names.includes(line)) { setName(i, names[i]); return; }
      newNames[i] = line;
      setName(i, line);
      reportChanges();
    };
    const merge = (from, into) => {
      mergedInto.forEach((to, i) => { if (to === from) mergedInto[i] = into; });
      const categoryOf = dimensions[view].categoryOf;
      categoryOf.forEach((category, row) => { if (category === from) categoryOf[row] = into; });
      views[view].marks.forEach((mark, i) => {
        if (mark[2] !== from) return;
        mark[2] = into;
        shapes[i].classList.replace('c' + views[view].colours[from], 'c' + views[view].colours[into]);
      });
      articles[from].hidden = legend[from].hidden = true;
      delete newNames[from];
      const count = categoryOf.filter(category => category === into).length;
      find('.size', articles[into]).textContent = countLabel(count, 'text') + ' · ' + percent(count / texts.length);
      find('small', legend[into]).textContent = percent(count / texts.length);
      const option = find('option[value="' + from + '"]', selects[view]);
      if (option) option.remove();
      reportChanges();
    };
    articles.forEach((article, i) => {
      const button = find('.rename', article), heading = find('h3', article);
      if (!button) return;
      button.addEventListener('click', () => { heading.contentEditable = 'plaintext-only'; heading.focus(); getSelection().selectAllChildren(heading); });
      heading.addEventListener('blur', () => { heading.contentEditable = 'false'; rename(i, heading.textContent); });
      heading.addEventListener('keydown', event => {
        if (event.key === 'Escape') heading.textContent = names[i];
        if (event.key === 'Enter' || event.key === 'Escape') { event.preventDefault(); heading.blur(); button.focus(); }
      });
      find('.merge', article).addEventListener('change', event => { if (event.target.value !== '') merge(i, Number(event.target.value)); });
    });
    find('.save-changes', bar).addEventListener('click', () => {
      const sets = names.map((_, into) => mergedInto.flatMap((to, i) => to === into ? [i + 1] : [])).filter(set => set.length > 1);
      const content = { question: views[view].question, merge: sets, rename: Object.fromEntries(Object.entries(newNames).map(([i, name]) => [Number(i) + 1, name])) };
      saveFile([JSON.stringify(content, null, 1) + '\n'], 'application/json', 'changes.json');
    });
    fillSelects();
  });

  // Cross tables
  const sum = values => values.reduce((a, b) => a + b, 0);
  const describeCell = (table, i, j) => {
    const { counts, lift, residuals, differs } = table, texts = counts[i][j];
    const row = dimensions[table.rows].names[i], column = dimensions[table.columns].names[j];
    const inRow = sum(counts[i]), inColumn = sum(counts.map(line => line[j]));
    return countLabel(texts, 'text') + ' in “' + row + '” and “' + column + '”: ' + percent(texts / (inRow || 1)) + ' of the row, '
      + percent(texts / (inColumn || 1)) + ' of the column' + (lift[i][j] === null ? '' : ', lift ' + lift[i][j].toFixed(2))
      + ', residual ' + (residuals[i][j] > 0 ? '+' : '') + residuals[i][j].toFixed(1)
      + [' (significantly fewer)', '', ' (significantly more)'][differs[i][j] + 1] + '.';
  };
  findAll('.heatmap').forEach(heatmap => {
    const table = tables[heatmap.dataset.table], readout = heatmap.parentElement.nextElementSibling;
    const grid = [...heatmap.tBodies[0].rows].map(row => findAll('button', row));
    const cellPosition = button => [Number(button.dataset.row), Number(button.dataset.column)];
    if (grid.length && grid[0].length) grid[0][0].tabIndex = 0;
    const showReading = event => {
      const button = event.target.closest('button');
      if (button) readout.textContent = describeCell(table, ...cellPosition(button));
    };
    heatmap.addEventListener('pointerover', showReading);
    heatmap.addEventListener('focusin', showReading);
    heatmap.addEventListener('click', event => {
      const button = event.target.closest('button');
      if (!button) return;
      const [i, j] = cellPosition(button);
      findAll('button[tabindex="0"]', heatmap).forEach(other => { other.tabIndex = -1; });
      button.tabIndex = 0;
      openTexts([[table.rows, i], [table.columns, j]], button);
    });
    heatmap.addEventListener('keydown', event => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      const button = event.target.closest('button');
      if (!step || !button) return;
      event.preventDefault();
      const [i, j] = cellPosition(button), next = (grid[i + step[0]] || [])[j + step[1]];
      if (!next) return;
      button.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  });
  findAll('.cell-content').forEach(select => select.addEventListener('change', () => {
    const kind = select.value;
    findAll('.cell-content').forEach(other => { other.value = kind; });
    findAll('.heatmap').forEach(heatmap => {
      const table = tables[heatmap.dataset.table];
      heatmap.classList.toggle('plain', kind !== 'count');
      findAll('button', heatmap).forEach(button => {
        const { row: i, column: j } = button.dataset, number = kind === 'count' ? table.counts[i][j] : kind === 'lift' ? table.lift[i][j] : table.residuals[i][j];
        find('b', button).textContent = number === null ? '–' : kind === 'count' ? number : kind === 'lift' ? number.toFixed(2) : (number > 0 ? '+' : '') + number.toFixed(1);
      });
    });
  }));

  // Charts
  findAll('.chart').forEach(chart => {
    const table = tables[chart.dataset.table], row = Number(chart.dataset.row), periods = dimensions[table.columns].names;
    const count = table.counts[row].length, highlight = find('.highlight', chart), readout = find('.readout', chart.parentElement);
    const period = event => {
      const box = chart.getBoundingClientRect();
      return Math.max(0, Math.min(count - 1, Math.floor((event.clientX - box.left) / box.width * count)));
    };
    chart.addEventListener('pointermove', event => {
      const j = period(event), texts = sum(table.counts.map(line => line[j]));
      highlight.setAttribute('x', j * 300 / count);
      readout.textContent = periods[j] + ': ' + table.counts[row][j] + ' of ' + countLabel(texts, 'text') + (texts ? ', ' + percent(table.counts[row][j] / texts) : '');
    });
    chart.addEventListener('pointerleave', () => { highlight.setAttribute('x', -999); readout.textContent = ''; });
    chart.addEventListener('click', event => openTexts([[table.rows, row], [table.columns, period(event)]], tabs[shownTab]));
  });

  addEventListener('beforeprint', () => findAll('details').forEach(details => { details.open = true; }));
  document.documentElement.dataset.dots = findAll('.dots > *').length;
})();
