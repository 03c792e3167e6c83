(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const { dimensions, views, tables, texts, numbers } = data;
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => root.querySelector(selector);
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const amount = (number, word) => number.toLocaleString('en') + ' ' + word + (number === 1 ? '' : 's');
  const percent = share => (share > 0 && share < 0.005 ? '<1' : Math.round(100 * share)) + '%';
  const numberOf = (view, number) => views[view].colours[number] === 'none' ? '' : number + 1; // what fits no group has none
  const group = (view, number) => {
    const line = element('span', '', 'g c' + views[view].colours[number]);
    line.append(element('b', numberOf(view, number)), ' ' + dimensions[view].names[number]);
    line.dir = 'auto';
    return line;
  };
  document.documentElement.classList.add('js');

  // Tabs
  const tabs = all('.tab'), panels = tabs.map(tab => document.getElementById(tab.hash.slice(1)));
  let shownTab = 0;
  const open = (index, focus) => {
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
    tab.addEventListener('click', event => { event.preventDefault(); open(index); });
    tab.addEventListener('keydown', event => {
      const last = tabs.length - 1;
      const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: last }[event.key];
      if (event.key === ' ') { event.preventDefault(); open(index); }
      if (to === undefined) return;
      event.preventDefault();
      open(to < 0 ? last : to > last ? 0 : to, true);
    });
  });
  open(Math.max(0, tabs.findIndex(tab => tab.hash === location.hash)));

  // The texts: what is picked out, the rows, the file
  const PAGE = 50;
  const search = one('.search'), selects = all('.filters select'), body = one('.rows tbody'), more = one('.next'), back = one('.back');
  const textsTab = tabs.length - 1;
  let found = [], listed = 0, place = null, origin = null, lower = null;

  const cell = (row, view) => {
    const made = element('td', '');
    made.append(group(view, dimensions[view].of[row]));
    if (views[view].answers[row]) {
      const answer = element('p', '“' + views[view].answers[row] + '”', 'said');
      answer.dir = 'auto';
      made.append(answer);
    }
    return made;
  };
  const valueOf = (kind, row) => kind.of[row] < 0 ? '' : kind.names[kind.of[row]];
  const list = () => {
    const fresh = document.createDocumentFragment();
    for (const row of found.slice(listed, listed + PAGE)) {
      const line = document.createElement('tr'), text = element('td', texts[row]), number = element('th', numbers[row]);
      number.scope = 'row';
      text.dir = 'auto';
      line.append(number, text, ...views.map((_, view) => cell(row, view)));
      line.append(...dimensions.slice(views.length).map(kind => element('td', valueOf(kind, row))));
      fresh.append(line);
    }
    listed = Math.min(found.length, listed + PAGE);
    body.append(fresh);
    more.hidden = listed === found.length;
    more.textContent = 'Show ' + Math.min(PAGE, found.length - listed) + ' more';
  };
  const pick = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = selects.map(select => select.value === '' ? -1 : Number(select.value));
    if (words.length && !lower) lower = texts.map((text, row) => [text, ...views.map(view => view.answers[row])].join('\n').toLowerCase());
    found = [];
    for (let row = 0; row < texts.length; row++) {
      if (wanted.every((category, i) => category < 0 || dimensions[i].of[row] === category)
        && (!place || views[place.view].markOf[row] === place.mark)
        && words.every(word => lower[row].includes(word))) found.push(row);
    }
    listed = 0;
    body.replaceChildren();
    list();
    const chosen = selects.flatMap((select, i) => wanted[i] < 0 ? [] : [dimensions[i].title + ' “' + select.selectedOptions[0].text + '”']);
    if (place) chosen.push('one place on the map of ' + views[place.view].question);
    if (words.length) chosen.push('with “' + search.value.trim() + '”');
    one('.found').textContent = found.length.toLocaleString('en') + ' of ' + amount(texts.length, 'text')
      + (chosen.length ? ' — ' + chosen.join(' · ') : '');
    selects.forEach((select, i) => select.classList.toggle('chosen', wanted[i] >= 0));
    one('.clear').disabled = !chosen.length;
    one('.download').disabled = !found.length;
  };
  const clear = () => { selects.forEach(select => { select.value = ''; }); search.value = ''; place = null; };
  const read = (wanted, from, where) => {
    clear();
    for (const [dimension, category] of wanted) selects[dimension].value = category;
    place = where || null;
    origin = { tab: shownTab, from };
    back.textContent = 'Back to ' + (shownTab < views.length ? 'the question' : tabs[shownTab].textContent.trim().toLowerCase());
    back.hidden = false;
    pick();
    open(textsTab);
    one('#heading-texts').focus();
    scrollTo({ top: 0, behavior: 'instant' });
  };
  selects.forEach(select => select.addEventListener('change', pick));
  search.addEventListener('input', () => { if (shownTab !== textsTab) { place = null; open(textsTab); } pick(); });
  search.addEventListener('keydown', event => { if (event.key === 'Escape') { search.value = ''; pick(); } });
  more.addEventListener('click', () => { const at = listed; list(); const line = body.rows[at]; line.tabIndex = -1; line.focus(); });
  one('.clear').addEventListener('click', () => { clear(); pick(); one('#heading-texts').focus(); });
  back.addEventListener('click', () => {
    open(origin.tab);
    origin.from.focus();
    origin.from.scrollIntoView({ block: 'center', behavior: 'instant' });
    back.hidden = true;
  });
  const quoted = value => {
    const text = /^[=+\-@\t\r]/.test(value) && isNaN(value) ? "'" + value : String(value); // no formula of a spreadsheet
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  one('.download').addEventListener('click', () => {
    const header = ['row', 'text'];
    views.forEach(view => header.push(view.question + ' (number)', view.question + ' (group)', view.question + ' (answer)'));
    header.push(...dimensions.slice(views.length).map(kind => kind.title));
    const lines = found.map(row => [
      numbers[row], texts[row],
      ...views.flatMap((view, i) => [numberOf(i, dimensions[i].of[row]), valueOf(dimensions[i], row), view.answers[row]]),
      ...dimensions.slice(views.length).map(kind => valueOf(kind, row)),
    ]);
    const content = [header, ...lines].map(line => line.map(quoted).join(',') + '\r\n').join('');
    const link = element('a', '');
    link.href = URL.createObjectURL(new Blob(['\ufeff', content], { type: 'text/csv;charset=utf-8' }));
    link.download = 'texts.csv';
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  });
  all('.open').forEach(button => button.addEventListener('click', () => read([[button.dataset.dimension, button.dataset.category]], button)));
  pick();

  // Maps
  all('.map').forEach((map, index) => {
    const view = views[index], marks = view.marks, names = dimensions[index].names;
    const plane = one('.plane', map), svg = one('svg', plane), ring = one('.ring', svg);
    const tip = one('.tip', plane), shapes = one('.dots', svg).children, buttons = all('.legend button', map);
    const order = marks.map((_, i) => i).sort((a, b) => marks[a][2] - marks[b][2] || marks[a][0] - marks[b][0]);
    let current = -1, only = -1, rowsOf = null;
    const lit = i => only < 0 || marks[i][2] === only;
    const rows = mark => {
      if (!rowsOf) {
        rowsOf = marks.map(() => []);
        view.markOf.forEach((of, row) => rowsOf[of].push(row));
      }
      return rowsOf[mark];
    };
    const hide = () => { current = -1; tip.hidden = true; ring.setAttribute('r', 0); };
    const describe = i => {
      const held = rows(i), lines = [group(index, marks[i][2])];
      if (marks[i][3] > 1) lines.push(element('p', amount(marks[i][3], 'text') + ' here' + (held.length ? ', such as' : '')));
      if (!held.length && marks[i][3] === 1) lines.push(element('p', 'This text is not in the sample that the page holds.'));
      held.slice(0, marks[i][3] > 1 ? 3 : 1).forEach(row => {
        const text = texts[row], short = element('p', text.length > 200 ? text.slice(0, 199) + '…' : text);
        const answer = element('p', '“' + view.answers[row] + '”', 'said');
        short.dir = answer.dir = 'auto';
        lines.push(short, ...(view.answers[row] ? [answer] : []));
      });
      if (marks[i][3] === 1 && held.length) views.forEach((other, j) => {
        if (j === index) return;
        const line = element('p', other.question + ' ', 'other');
        line.append(group(j, dimensions[j].of[held[0]]));
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
      let best = -1, least = (reach / scale) ** 2;
      marks.forEach(([x, y], i) => {
        const far = (x - px) ** 2 + (y - py) ** 2;
        if (far < least && lit(i)) { best = i; least = far; }
      });
      return best;
    };
    const point = (event, reach) => { const i = nearest(event, reach); if (i < 0) hide(); else show(i); };
    const enter = i => read([[index, marks[i][2]]], plane, { view: index, mark: i });
    svg.addEventListener('pointermove', event => { if (event.pointerType === 'mouse') point(event, 14); });
    svg.addEventListener('pointerleave', event => { if (event.pointerType === 'mouse') hide(); });
    svg.addEventListener('click', event => { point(event, 28); if (event.detail > 1 && current >= 0) enter(current); });
    plane.addEventListener('focus', () => { if (plane.matches(':focus-visible') && current < 0) show(order.find(lit)); });
    plane.addEventListener('blur', hide);
    document.addEventListener('pointerdown', event => { if (!plane.contains(event.target)) hide(); });
    plane.addEventListener('keydown', event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === 'Escape') hide();
      if (event.key === 'Enter' && current >= 0) enter(current);
      if (!step) return;
      event.preventDefault();
      const path = order.filter(lit), leap = event.key === 'ArrowDown' || event.key === 'ArrowUp';
      let at = current < 0 ? (step > 0 ? -1 : path.length) : path.indexOf(current);
      do at += step; while (leap && current >= 0 && at in path && marks[path[at]][2] === marks[current][2]);
      if (at in path) show(path[at]);
    });
    buttons.forEach((button, number) => button.addEventListener('click', () => {
      only = only === number ? -1 : number;
      hide();
      buttons.forEach((other, i) => other.setAttribute('aria-pressed', i === only));
      svg.classList.toggle('isolated', only >= 0);
      marks.forEach((mark, i) => shapes[i].classList.toggle('lit', mark[2] === only));
    }));
  });

  // Cross tables
  const sum = list => list.reduce((a, b) => a + b, 0);
  const reading = (table, i, j) => {
    const { counts, lift, residuals, differs } = table, texts = counts[i][j];
    const row = dimensions[table.rows].names[i], column = dimensions[table.columns].names[j];
    const inRow = sum(counts[i]), inColumn = sum(counts.map(line => line[j]));
    return amount(texts, 'text') + ' in “' + row + '” and “' + column + '”: ' + percent(texts / (inRow || 1)) + ' of the row, '
      + percent(texts / (inColumn || 1)) + ' of the column' + (lift[i][j] === null ? '' : ', lift ' + lift[i][j].toFixed(2))
      + ', residual ' + (residuals[i][j] > 0 ? '+' : '') + residuals[i][j].toFixed(1)
      + [' (fewer than chance)', '', ' (more than chance)'][differs[i][j] + 1] + '.';
  };
  all('.heat').forEach(heat => {
    const table = tables[heat.dataset.table], readout = heat.parentElement.nextElementSibling;
    const grid = [...heat.tBodies[0].rows].map(row => all('button', row));
    const at = button => [Number(button.dataset.row), Number(button.dataset.column)];
    if (grid.length && grid[0].length) grid[0][0].tabIndex = 0;
    const tell = event => {
      const button = event.target.closest('button');
      if (button) readout.textContent = reading(table, ...at(button));
    };
    heat.addEventListener('pointerover', tell);
    heat.addEventListener('focusin', tell);
    heat.addEventListener('click', event => {
      const button = event.target.closest('button');
      if (!button) return;
      const [i, j] = at(button);
      all('button[tabindex="0"]', heat).forEach(other => { other.tabIndex = -1; });
      button.tabIndex = 0;
      read([[table.rows, i], [table.columns, j]], button);
    });
    heat.addEventListener('keydown', event => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      const button = event.target.closest('button');
      if (!step || !button) return;
      event.preventDefault();
      const [i, j] = at(button), next = (grid[i + step[0]] || [])[j + step[1]];
      if (!next) return;
      button.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  });
  all('.shows').forEach(select => select.addEventListener('change', () => {
    const kind = select.value;
    all('.shows').forEach(other => { other.value = kind; });
    all('.heat').forEach(heat => {
      const table = tables[heat.dataset.table];
      heat.classList.toggle('plain', kind !== 'count');
      all('button', heat).forEach(button => {
        const { row: i, column: j } = button.dataset, number = kind === 'count' ? table.counts[i][j] : kind === 'lift' ? table.lift[i][j] : table.residuals[i][j];
        one('b', button).textContent = number === null ? '–' : kind === 'count' ? number : kind === 'lift' ? number.toFixed(2) : (number > 0 ? '+' : '') + number.toFixed(1);
      });
    });
  }));

  // Charts
  all('.chart').forEach(chart => {
    const table = tables[chart.dataset.table], row = Number(chart.dataset.row), periods = dimensions[table.columns].names;
    const count = table.counts[row].length, pointed = one('.pointed', chart), readout = one('.readout', chart.parentElement);
    const period = event => {
      const box = chart.getBoundingClientRect();
      return Math.max(0, Math.min(count - 1, Math.floor((event.clientX - box.left) / box.width * count)));
    };
    chart.addEventListener('pointermove', event => {
      const j = period(event), texts = sum(table.counts.map(line => line[j]));
      pointed.setAttribute('x', j * 300 / count);
      readout.textContent = periods[j] + ': ' + table.counts[row][j] + ' of ' + amount(texts, 'text') + (texts ? ', ' + percent(table.counts[row][j] / texts) : '');
    });
    chart.addEventListener('pointerleave', () => { pointed.setAttribute('x', -999); readout.textContent = ''; });
    chart.addEventListener('click', event => read([[table.rows, row], [table.columns, period(event)]], tabs[shownTab]));
  });

  addEventListener('beforeprint', () => all('details').forEach(details => { details.open = true; }));
  document.documentElement.dataset.dots = all('.dots > *').length;
})();
