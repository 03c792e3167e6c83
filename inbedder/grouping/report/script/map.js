// Maps: reading, zoom, areas and colours
const MAX_ZOOM = 40, DRAG = 4; // pixels that the pointer moves before a click becomes a drag
const createSvg = (name, attributes) => {
  const node = document.createElementNS(find('svg').namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};
const isInside = (x, y, polygon) => {
  let inside = false;
  polygon.forEach(([ax, ay], i) => {
    const [bx, by] = polygon[(i || polygon.length) - 1];
    if ((ay > y) !== (by > y) && x < (bx - ax) * (y - ay) / (by - ay) + ax) inside = !inside;
  });
  return inside;
};

const findCentral = marks => { // the mark nearest to the median
  const median = axis => {
    const values = marks.map(mark => mark[axis]).sort((a, b) => a - b), half = (values.length - 1) / 2;
    return (values[Math.floor(half)] + values[Math.ceil(half)]) / 2;
  };
  const x = median(0), y = median(1), distance = mark => Math.hypot(mark[0] - x, mark[1] - y);
  return marks.reduce((best, mark) => distance(mark) < distance(best) ? mark : best);
};

const makeMap = (map, index) => {
  const view = views[index], marks = view.marks;
  const plane = find('.plane', map), svg = find('svg', plane), ring = find('.ring', svg), lasso = find('.lasso', svg);
  const tip = find('.tip', plane), shapes = find('.dots', svg).children, ownLegend = find('.legend', map);
  const { width, height } = svg.viewBox.baseVal, answers = [], answerCounts = countValues(view.answers.map(answer => answer.toLowerCase()));
  const isRepeated = answer => answer && answerCounts.get(answer.toLowerCase()) > 1;
  const order = marks.map((_, i) => i).sort((a, b) => marks[a][2] - marks[b][2] || marks[a][0] - marks[b][0]);
  let current = -1, isolated = -1, colourBy = index, categoryOf = marks.map(mark => mark[2]), rowsOfMark = null, hits = null, hidesOthers = false;
  let zoom = 1, left = 0, top = 0, drag = null, path = null;
  const isShown = i => (isolated < 0 || categoryOf[i] === isolated) && (!hidesOthers || hits.has(i));
  const rowsAt = mark => {
    if (!rowsOfMark) {
      rowsOfMark = marks.map(() => []);
      view.markOf.forEach((mark, row) => rowsOfMark[mark].push(row));
    }
    return rowsOfMark[mark];
  };

  // Zoom: names and numbers keep their size on the screen, dots grow more slowly than the map
  const scale = () => svg.clientWidth / width * zoom; // pixels per unit
  const fit = () => {
    if (!svg.clientWidth) return; // in a hidden tab
    left = Math.max(0, Math.min(left, width - width / zoom));
    top = Math.max(0, Math.min(top, height - height / zoom));
    svg.setAttribute('viewBox', [left, top, width / zoom, height / zoom].join(' '));
    svg.classList.toggle('zoomed', zoom > 1);
    svg.style.setProperty('--dot', zoom ** -0.6);
    svg.style.setProperty('--unit', 1 / scale());
    find('.zoom-out', map).disabled = find('.reset', map).disabled = zoom === 1;
    find('.zoom-in', map).disabled = zoom === MAX_ZOOM;
    hide();
    placeNames(svg, [left, top], scale(), zoom > 1 ? listAnswers() : []);
  };
  const answerAt = i => answers[i] ??= mostFrequentAnswer(rowsAt(i).map(row => view.answers[row]).filter(isRepeated));
  const listAnswers = () => { // the most frequent answers in view, the more the larger the map
    const marksOf = new Map(), isInView = ([x, y]) => x > left && y > top && x < left + width / zoom && y < top + height / zoom;
    marks.forEach((mark, i) => {
      const answer = isShown(i) && isInView(mark) && answerAt(i), key = answer && answer.toLowerCase();
      if (answer) marksOf.set(key, [...(marksOf.get(key) || []), i]);
    });
    const count = own => own.reduce((sum, i) => sum + marks[i][3], 0);
    return [...marksOf.values()].sort((a, b) => count(b) - count(a)).slice(0, ANSWERS_PER_DOUBLING * Math.log2(zoom)).map(own => {
      const [x, y] = findCentral(own.map(i => marks[i]));
      return { name: answerAt(own[0]), x, y };
    });
  };
  const zoomTo = (factor, x = left + width / zoom / 2, y = top + height / zoom / 2) => {
    const before = zoom;
    zoom = Math.max(1, Math.min(MAX_ZOOM, zoom * factor));
    left = x - (x - left) * before / zoom;
    top = y - (y - top) * before / zoom;
    fit();
  };
  const reset = () => { zoom = 1; fit(); };
  const position = event => {
    const box = svg.getBoundingClientRect();
    return [left + (event.clientX - box.left) / scale(), top + (event.clientY - box.top) / scale()];
  };

  // Reading
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
    const [x, y] = marks[i];
    if (x < left || y < top || x > left + width / zoom || y > top + height / zoom) {
      left = x - width / zoom / 2;
      top = y - height / zoom / 2;
      fit();
    }
    current = i;
    tip.replaceChildren(...describe(i));
    tip.hidden = false;
    ring.setAttribute('cx', x); ring.setAttribute('cy', y); ring.setAttribute('r', 9 / zoom ** 0.6);
    const px = (x - left) * scale(), py = (y - top) * scale(), above = py - tip.offsetHeight - 14;
    tip.style.left = Math.max(0, Math.min(px - tip.offsetWidth / 2, plane.clientWidth - tip.offsetWidth)) + 'px';
    tip.style.top = (above > -60 ? above : py + 14) + 'px';
  };
  const point = (event, reach) => {
    const [px, py] = position(event);
    let best = -1, smallest = (reach / scale()) ** 2;
    marks.forEach(([x, y], i) => {
      const distance = (x - px) ** 2 + (y - py) ** 2;
      if (distance < smallest && isShown(i)) { best = i; smallest = distance; }
    });
    if (best < 0) hide(); else show(best);
  };
  const openArea = chosen => {
    const rows = chosen.flatMap(rowsAt).sort((a, b) => a - b), count = chosen.reduce((sum, i) => sum + marks[i][3], 0);
    openDrawer(index, rows, count, plane);
  };

  // The pointer: reads, drags the zoomed map, or draws an area
  const areaButton = find('.area', map);
  const endArea = () => { areaButton.setAttribute('aria-pressed', false); svg.classList.remove('drawing'); };
  svg.addEventListener('pointerdown', event => {
    if (event.button) return;
    drag = { x: event.clientX, y: event.clientY, left, top, moved: false };
    path = areaButton.getAttribute('aria-pressed') === 'true' || event.shiftKey ? [position(event)] : null;
    lasso.setAttribute('d', '');
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener('pointermove', event => {
    if (!drag) { if (event.pointerType === 'mouse') point(event, 14); return; }
    drag.moved ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > DRAG;
    if (!drag.moved) return;
    if (path) {
      path.push(position(event));
      lasso.setAttribute('d', 'M' + path.map(point => point.join(' ')).join('L') + 'Z');
    } else if (zoom > 1) {
      left = drag.left - (event.clientX - drag.x) / scale();
      top = drag.top - (event.clientY - drag.y) / scale();
      fit();
    }
  });
  svg.addEventListener('pointerup', event => {
    if (path && drag.moved) {
      hide();
      endArea();
      const chosen = order.filter(i => isShown(i) && isInside(marks[i][0], marks[i][1], path));
      if (chosen.length) openArea(chosen); else lasso.setAttribute('d', '');
    } else if (drag && !drag.moved) {
      point(event, 28);
      if (current >= 0) openArea([current]);
    }
    drag = path = null;
  });
  svg.addEventListener('pointercancel', () => { drag = path = null; });
  svg.addEventListener('pointerleave', event => { if (event.pointerType === 'mouse' && !drag) hide(); });
  svg.addEventListener('wheel', event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomTo(1.2 ** (-event.deltaY / 50), ...position(event));
  }, { passive: false });
  areaButton.addEventListener('click', () => {
    const isOn = areaButton.getAttribute('aria-pressed') !== 'true';
    areaButton.setAttribute('aria-pressed', isOn);
    svg.classList.toggle('drawing', isOn);
    lasso.setAttribute('d', '');
  });
  find('.zoom-in', map).addEventListener('click', () => zoomTo(1.6));
  find('.zoom-out', map).addEventListener('click', () => zoomTo(1 / 1.6));
  find('.reset', map).addEventListener('click', reset);
  find('.picture', map).addEventListener('click', () => savePicture(svg, view.question, find('.legend:not([hidden])', map)));

  // Keys
  plane.addEventListener('focus', () => { if (plane.matches(':focus-visible') && current < 0) show(order.find(isShown)); });
  plane.addEventListener('blur', hide);
  document.addEventListener('pointerdown', event => { if (!plane.contains(event.target)) hide(); });
  plane.addEventListener('keydown', event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.target !== plane) return;
    if (event.key === 'Escape') { hide(); endArea(); lasso.setAttribute('d', ''); }
    if (event.key === 'Enter' && current >= 0) openArea([current]);
    if (event.key === '0') reset();
    if (event.key === '+' || event.key === '-') {
      const kept = current;
      zoomTo(event.key === '+' ? 1.6 : 1 / 1.6, ...(kept < 0 ? [] : marks[kept]));
      if (kept >= 0) show(kept);
    }
    if (!step) return;
    event.preventDefault();
    const shown = order.filter(isShown), skipsGroup = event.key === 'ArrowDown' || event.key === 'ArrowUp';
    let place = current < 0 ? (step > 0 ? -1 : shown.length) : shown.indexOf(current);
    do place += step; while (skipsGroup && current >= 0 && place in shown && marks[shown[place]][2] === marks[current][2]);
    if (place in shown) show(shown[place]);
  });

  // Colours and the legend
  const mostFrequent = (kind, rows) => {
    const counts = countCategories(kind, rows), most = Math.max(0, ...counts);
    return most ? counts.indexOf(most) : -1;
  };
  const dots = dimensions[index].names.map((_, group) => { const i = marks.findIndex(mark => mark[2] === group); return i < 0 ? null : shapes[i].cloneNode(); });
  const reshape = (i, group) => { // the shape of a dot changes with its group
    const [x, y] = marks[i], dot = dots[group].cloneNode();
    if (dot.localName === 'circle') { dot.setAttribute('cx', x); dot.setAttribute('cy', y); }
    else dot.setAttribute('d', dot.getAttribute('d').replace(/^[^m]+/, 'M' + x + ' ' + y));
    shapes[i].replaceWith(dot);
  };
  const placeBadges = () => { // as in maps.py: on the mark nearest to the group's median, or above it if the group has few
    findAll('.badge', svg).forEach(badge => {
      const own = marks.filter(mark => mark[2] === Number(badge.dataset.group));
      badge.toggleAttribute('hidden', !own.length);
      if (!own.length) return;
      const nearest = findCentral(own);
      badge.dataset.x = nearest[0];
      badge.dataset.y = nearest[1] - (own.length < 8 ? 17 : 0);
      badge.setAttribute('transform', 'translate(' + badge.dataset.x + ' ' + badge.dataset.y + ')');
    });
  };
  const regroup = groupOf => {
    const hasSquares = find('.dense', svg);
    marks.forEach((mark, i) => {
      const group = groupOf(mark, i);
      if (group === mark[2]) return;
      mark[2] = group;
      if (!hasSquares && dots[group]) reshape(i, group);
    });
  };
  const paint = () => categoryOf.forEach((category, i) => {
    shapes[i].setAttribute('class', 'c' + (dimensions[colourBy].colours[category] ?? 'none') + (category === isolated ? ' lit' : '') + (hits?.has(i) ? ' hit' : ''));
  });
  const mark = (rows, hides) => { // mark the texts of rows, or none
    if (!rows && !hits) return;
    hits = rows && new Set(rows.map(row => view.markOf[row]));
    hidesOthers = hides && Boolean(hits);
    svg.classList.toggle('marked', Boolean(hits));
    paint();
    fit();
  };
  const markFound = () => {
    foundButton.hidden = !found;
    foundButton.textContent = found && found.length.toLocaleString('en') + ' of ' + countLabel(texts.length, 'text') + ' match: list them';
    mark(found, true);
  };
  const isolate = (category, legend) => {
    isolated = isolated === category ? -1 : category;
    hide();
    svg.classList.toggle('isolated', isolated >= 0);
    findAll('button', legend).forEach(button => button.setAttribute('aria-pressed', Number(button.dataset.category) === isolated));
    paint();
    fit();
  };
  const makeLegend = kind => {
    const legend = element('ol', '', 'legend other'), counts = countCategories(kind, texts.map((_, row) => row));
    legend.setAttribute('aria-label', kind.title);
    counts.map((_, category) => category).filter(category => counts[category]).sort((a, b) => counts[b] - counts[a]).forEach(category => {
      const button = element('button', ''), mark = createSvg('svg', { class: 'mark', viewBox: '-8 -8 16 16', 'aria-hidden': true });
      mark.append(createSvg('circle', { class: 'c' + kind.colours[category], r: 5.5 }));
      const name = element('span', kind.names[category]), item = element('li', '');
      name.dir = 'auto';
      button.type = 'button';
      button.dataset.category = category;
      button.setAttribute('aria-pressed', false);
      button.append(mark, element('b', colourBy < views.length ? groupNumber(colourBy, category) : ''), name, element('small', percent(counts[category] / texts.length)));
      button.addEventListener('click', () => isolate(category, legend));
      item.append(button);
      legend.append(item);
    });
    return legend;
  };
  const recolour = () => {
    const kind = dimensions[colourBy], other = find('.legend.other', map);
    if (other) other.remove();
    categoryOf = marks.map((mark, i) => colourBy === index ? mark[2] : mostFrequent(kind, rowsAt(i)));
    isolated = -1;
    svg.classList.remove('isolated');
    svg.classList.toggle('recoloured', colourBy !== index);
    findAll('button', ownLegend).forEach(button => button.setAttribute('aria-pressed', false));
    ownLegend.hidden = colourBy !== index;
    if (colourBy !== index) ownLegend.before(makeLegend(kind));
    hide();
    paint();
    fit();
  };
  findAll('button', ownLegend).forEach((button, category) => {
    button.dataset.category = category;
    button.addEventListener('click', () => isolate(category, ownLegend));
  });
  const colourSelect = find('.colour-by', map), foundButton = find('.found', map);
  if (colourSelect) colourSelect.addEventListener('change', () => { colourBy = Number(colourSelect.value); recolour(); });
  foundButton.addEventListener('click', () => openTexts([], search, null, search.value));
  new ResizeObserver(() => { if (svg.clientWidth) fit(); }).observe(svg);
  return {
    recolour,
    mark,
    markFound,
    plane,
    getSelection: () => ({ colours: colourBy, category: isolated }),
    select: (colours, category) => {
      if (colours !== colourBy && colourSelect) {
        colourSelect.value = colourBy = colours;
        recolour();
      }
      const legend = find('.legend:not([hidden])', map), button = find('[data-category="' + category + '"]', legend);
      if (button && category !== isolated) isolate(category, legend);
      if (!button && isolated >= 0) isolate(isolated, legend);
    },
    mergeGroups: (from, into) => regroup(mark => mark[2] === from ? into : mark[2]),
    moveRows: rows => { // a mark whose texts are all on the page has the group of most of them
      const changed = new Set(rows.map(row => view.markOf[row]));
      regroup((mark, i) => changed.has(i) && rowsAt(i).length === mark[3] ? mostFrequent(dimensions[index], rowsAt(i)) : mark[2]);
      placeBadges();
    },
    rename: (group, name) => { setLabel(find('.badge[data-group="' + group + '"]', svg), name); fit(); },
  };
};
const maps = findAll('.map').map(makeMap);
