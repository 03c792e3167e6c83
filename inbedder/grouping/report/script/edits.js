// Changes of the groups
const LISTED_ANSWERS = 6, LISTED_EXAMPLES = 5, SHOWN_EXAMPLES = 3;
const groupEdits = views.map((_, view) => {
  const names = dimensions[view].names, panel = panels[view], bar = find('.changes', panel), cards = find('.cards', panel), articles = findAll('article', cards);
  const legend = findAll('.legend li:not(.branch)', panel);
  const mergedInto = names.map((_, i) => i), newNames = {}, { categoryOf } = dimensions[view], categoriesAtFirst = [...categoryOf];
  const namesAtFirst = names.filter((_, i) => dimensions[view].colours[i] !== 'none');
  const { sizes, answers, second } = views[view], share = i => sizes[i] / data.total;
  const isGroup = i => mergedInto[i] === i && dimensions[view].colours[i] !== 'none';
  const answerOf = row => answers[row] || '(no answer)';
  const movedRows = () => texts.map((_, row) => row).filter(row => mergedInto[categoriesAtFirst[row]] !== categoryOf[row]);
  const describeGroups = () => {
    const groups = names.map((_, i) => i).filter(i => isGroup(i) && sizes[i]).sort((a, b) => sizes[b] - sizes[a]);
    const finding = find('.finding', panel), label = find('.group-count', panel), { unit } = label.dataset;
    label.textContent = countLabel(names.filter((_, i) => unit === 'category' ? isGroup(i) : mergedInto[i] === i).length, unit);
    if (finding) finding.textContent = 'largest: ' + groups.slice(0, 3).map(i => '“' + names[i] + (find('.loose', legend[i]) ? ' ≈' : '') + '” ' + percent(share(i))).join(', ');
  };
  const readCounts = article => findAll('.answers li', article).map(line => [find('bdi', line).textContent, Number(find('b', line).textContent.replaceAll(',', ''))]);
  const countAnswers = (group, changes) => {
    const counts = new Map(), spelling = new Map(), add = ([answer, count]) => {
      const key = answer.toLowerCase();
      if (!spelling.has(key)) spelling.set(key, answer);
      counts.set(key, (counts.get(key) || 0) + count);
    };
    if (texts.length < data.total) [...readCounts(articles[group]), ...changes].forEach(add); // the page holds a sample
    else categoryOf.forEach((category, row) => { if (category === group) add([answerOf(row), 1]); });
    return [...counts].filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]).slice(0, LISTED_ANSWERS).map(([key, count]) => [spelling.get(key), count]);
  };
  const showCounts = (group, changes) => { // changes: answers and how many texts with them came or went
    const card = articles[group], list = find('.answers', card);
    find('.size', card).textContent = countLabel(sizes[group], 'text') + ' · ' + percent(share(group));
    find('.bar i', card).style.setProperty('--w', (100 * share(group)).toFixed(2));
    find('small', legend[group]).textContent = percent(share(group));
    if (list) list.replaceChildren(...countAnswers(group, changes).map(([answer, count]) => {
      const line = element('li', ''), name = element('bdi', answer);
      line.append(name, ' ', element('b', count.toLocaleString('en')));
      return line;
    }));
    [card, legend[group]].flatMap(each => findAll('.loose', each)).forEach(mark => mark.remove()); // a changed group was not measured
  };
  const mergeCards = (from, into) => {
    const card = articles[into];
    showCounts(into, readCounts(articles[from]));
    const [own, other] = [into, from].map(i => findAll('.quotes li', articles[i])), shown = find('.quotes', card);
    const quotes = own.flatMap((quote, i) => other[i] ? [quote, other[i]] : [quote]).concat(other.slice(own.length)).slice(0, LISTED_EXAMPLES);
    if (shown) shown.replaceChildren(...quotes);
    find('details', card)?.remove();
    findAll('.composition', card).forEach((own, i) => mergeCompositions(own, findAll('.composition', articles[from])[i]));
  };
  const removeQuotes = (card, rows) => {
    const moved = rows.map(row => texts[row]), more = find('details', card);
    findAll('.quotes li', card).forEach(quote => { // a quote is clipped
      const start = quote.textContent.replace(/\s+/g, ' ').trim().replace(/…$/, '');
      if (moved.some(text => text.startsWith(start))) quote.remove();
    });
    const list = find('.quotes', card), spare = more ? findAll('li', more) : [];
    if (!list) return;
    list.append(...spare.splice(0, Math.max(0, SHOWN_EXAMPLES - list.children.length)));
    if (spare.length) find('summary', more).textContent = spare.length + ' more'; else more?.remove();
    if (!list.children.length) { list.previousElementSibling.remove(); list.remove(); }
  };
  const readLabels = composition => findAll('.counts li', composition).map(line => [find('bdi', line).textContent, Number(line.dataset.count)]);
  const mergeCompositions = (own, other) => {
    const counts = new Map();
    [own, other].flatMap(readLabels).forEach(([label, count]) => counts.set(label, (counts.get(label) || 0) + count));
    drawComposition(own, counts);
  };
  const changeComposition = (own, rows, change) => {
    const column = find('h4 bdi', own), kind = column && dimensions.slice(views.length).find(({ title }) => title === column.textContent);
    if (!kind) { own.remove(); return; } // the page does not hold the value of each text
    const counts = new Map(readLabels(own)), others = [...counts.keys()].find(label => /^[0-9]+ others$/.test(label));
    rows.filter(row => kind.categoryOf[row] >= 0).forEach(row => {
      const label = kind.names[kind.categoryOf[row]], key = counts.has(label) || !others ? label : others;
      counts.set(key, (counts.get(key) || 0) + change);
    });
    drawComposition(own, counts);
  };
  const drawComposition = (own, counts) => {
    const entries = [...counts].filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]), total = sum([...counts.values()]), opacity = i => Math.max(0.95 - 0.17 * i, 0.12);
    find('.bar', own).replaceChildren(...entries.map(([, count], i) => {
      const part = element('i', '');
      part.style.cssText = '--w:' + (100 * count / total).toFixed(2) + ';--a:' + opacity(i).toFixed(2);
      return part;
    }));
    find('.counts', own).replaceChildren(...entries.map(([label, count], i) => {
      const line = element('li', ''), key = element('span', '', 'key');
      key.style.setProperty('--a', opacity(i).toFixed(2));
      line.dataset.count = count;
      line.append(key, element('bdi', label), ' ', element('b', percent(count / total)));
      return line;
    }));
    find('.entropy', own).textContent = '';
  };
  const setName = (i, name) => {
    names[i] = name;
    find('h3', articles[i]).textContent = find('bdi', legend[i]).textContent = name;
    maps[view].rename(i, name);
    renameInTables(view, i, name);
    const option = find('option[value="' + i + '"]', selects[view]);
    if (option) option.textContent = groupNumber(view, i) + ' ' + name;
  };
  const fillSelects = () => findAll('.merge', cards).forEach(select => {
    const own = articles.indexOf(select.closest('article'));
    select.replaceChildren(new Option('…', ''), ...names.flatMap((name, i) =>
      i === own || !isGroup(i) ? [] : [new Option(groupNumber(view, i) + ' ' + name, i)]));
  });
  const reportChanges = () => {
    const merges = mergedInto.filter((into, i) => into !== i).length, renames = Object.keys(newNames).length;
    const moved = movedRows().length;
    bar.hidden = !merges && !renames && !moved;
    find('span', bar).textContent = [merges && countLabel(merges, 'group') + ' merged', renames && countLabel(renames, 'group') + ' renamed', moved && countLabel(moved, 'text') + ' moved']
      .filter(Boolean).join(', ') + '.' + ((merges || moved) && find('.chart') ? ' The trends of changed groups over time are not tested anew.' : '');
    describeGroups();
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
    [categoryOf, second].forEach(groups => groups.forEach((group, row) => { if (group === from) groups[row] = into; }));
    maps[view].mergeGroups(from, into);
    maps.forEach(map => map.recolour());
    find('.badge[data-group="' + from + '"]', panel)?.remove();
    articles[from].hidden = legend[from].hidden = true;
    delete newNames[from];
    sizes[into] += sizes[from];
    sizes[from] = 0;
    mergeCards(from, into);
    mergeInTables(view, from, into);
    findAll('.branch', panel).forEach(branch => branch.remove()); // they hold the groups before the merge
    const option = find('option[value="' + from + '"]', selects[view]);
    if (option) option.remove();
    reportChanges();
  };
  const move = (rows, into) => {
    const sameTexts = new Set(rows.map(row => texts[row])); // equal texts have equal vectors, so they move together
    const moves = texts.flatMap((text, row) => categoryOf[row] !== into && sameTexts.has(text) ? [{ row, from: categoryOf[row] }] : []);
    moves.forEach(({ row, from }) => { categoryOf[row] = into; second[row] = -1; sizes[from]--; sizes[into]++; });
    maps[view].moveRows(moves.map(({ row }) => row));
    maps.forEach(map => map.recolour());
    [...new Set([into, ...moves.map(({ from }) => from)])].forEach(group => {
      const change = group === into ? 1 : -1, groupRows = moves.filter(({ from }) => group === into || from === group).map(({ row }) => row);
      showCounts(group, groupRows.map(row => [answerOf(row), change]));
      findAll('.composition', articles[group]).forEach(own => changeComposition(own, groupRows, change));
      if (group !== into) removeQuotes(articles[group], groupRows);
    });
    moveInTables(view, moves, into);
    findAll('.branch', panel).forEach((branch, i) => {
      const inBranch = legend.map((_, group) => group).filter(group => Number(legend[group].style.order) === 2 * i + 1);
      find('small', branch).textContent = percent(sum(inBranch.map(share)));
    });
    reportChanges();
    return moves.length;
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
  const save = () => {
    const membersOf = into => mergedInto.flatMap((to, i) => to === into ? [i + 1] : []), merged = names.map((_, into) => into).filter(into => membersOf(into).length > 1);
    const content = {
      question: views[view].question,
      groups: namesAtFirst,
      move: movedRows().map(row => ({ text: texts[row], to: categoryOf[row] + 1 })),
      merge: merged.map(membersOf),
      rename: Object.fromEntries([...Object.keys(newNames), ...merged].map(i => [Number(i) + 1, names[i]])), // a merged group keeps the name it has here
    };
    saveFile([JSON.stringify(content, null, 1) + '\n'], 'application/json', 'changes.json');
  };
  find('.save-changes', bar).addEventListener('click', save);
  fillSelects();
  return { move, save, listGroups: () => names.map((_, i) => i).filter(isGroup), isChanged: () => !bar.hidden };
});
