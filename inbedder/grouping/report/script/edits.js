// Changes of the groups
const LISTED_ANSWERS = 6, LISTED_EXAMPLES = 5;
findAll('.cards').forEach((cards, view) => {
  const names = dimensions[view].names, panel = panels[view], bar = find('.changes', panel), articles = findAll('article', cards);
  const legend = findAll('.legend li:not(.branch)', panel);
  const mergedInto = names.map((_, i) => i), newNames = {};
  const { sizes } = views[view], share = i => sizes[i] / data.total;
  const describeGroups = () => {
    const groups = names.map((_, i) => i).filter(i => mergedInto[i] === i && dimensions[view].colours[i] !== 'none').sort((a, b) => sizes[b] - sizes[a]);
    const finding = find('.finding', panel);
    find('.group-count', panel).textContent = countLabel(names.filter((_, i) => mergedInto[i] === i).length, 'group');
    if (finding) finding.textContent = 'largest: ' + groups.slice(0, 3).map(i => '“' + names[i] + '” ' + percent(share(i))).join(', ');
  };
  const readCounts = article => findAll('.answers li', article).map(line => [find('bdi', line).textContent, Number(find('b', line).textContent.replaceAll(',', ''))]);
  const countAnswers = (from, into) => {
    const counts = new Map(), spelling = new Map(), add = ([answer, count]) => {
      const key = answer.toLowerCase();
      if (!spelling.has(key)) spelling.set(key, answer);
      counts.set(key, (counts.get(key) || 0) + count);
    };
    if (texts.length < data.total) [into, from].flatMap(i => readCounts(articles[i])).forEach(add); // the page holds a sample
    else dimensions[view].categoryOf.forEach((category, row) => { if (category === into) add([views[view].answers[row] || '(no answer)', 1]); });
    return [...counts].sort((a, b) => b[1] - a[1]).slice(0, LISTED_ANSWERS).map(([key, count]) => [spelling.get(key), count]);
  };
  const mergeCards = (from, into) => {
    const card = articles[into], list = find('.answers', card);
    find('.size', card).textContent = countLabel(sizes[into], 'text') + ' · ' + percent(share(into));
    find('.bar i', card).style.setProperty('--w', (100 * share(into)).toFixed(2));
    if (list) list.replaceChildren(...countAnswers(from, into).map(([answer, count]) => {
      const line = element('li', ''), name = element('bdi', answer);
      line.append(name, ' ', element('b', count.toLocaleString('en')));
      return line;
    }));
    const [own, other] = [into, from].map(i => findAll('.quotes li', articles[i])), shown = find('.quotes', card);
    const quotes = own.flatMap((quote, i) => other[i] ? [quote, other[i]] : [quote]).concat(other.slice(own.length)).slice(0, LISTED_EXAMPLES);
    if (shown) shown.replaceChildren(...quotes);
    find('details', card)?.remove();
    findAll('.composition', card).forEach((own, i) => mergeCompositions(own, findAll('.composition', articles[from])[i]));
    findAll('.loose', card).forEach(mark => mark.remove()); // a merged group was not measured
    findAll('.loose', legend[into]).forEach(mark => mark.remove());
  };
  const mergeCompositions = (own, other) => {
    const counts = new Map();
    [own, other].flatMap(each => findAll('.counts li', each)).forEach(line => {
      const label = find('bdi', line).textContent;
      counts.set(label, (counts.get(label) || 0) + Number(line.dataset.count));
    });
    const entries = [...counts].sort((a, b) => b[1] - a[1]), total = sum([...counts.values()]), opacity = i => Math.max(0.95 - 0.17 * i, 0.12);
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
      i === own || mergedInto[i] !== i || dimensions[view].colours[i] === 'none' ? [] : [new Option(groupNumber(view, i) + ' ' + name, i)]));
  });
  const reportChanges = () => {
    const merges = mergedInto.filter((into, i) => into !== i).length, renames = Object.keys(newNames).length;
    bar.hidden = !merges && !renames;
    find('span', bar).textContent = [merges && countLabel(merges, 'group') + ' merged', renames && countLabel(renames, 'group') + ' renamed']
      .filter(Boolean).join(', ') + '. The trends of merged groups over time are not tested anew.';
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
    const categoryOf = dimensions[view].categoryOf;
    categoryOf.forEach((category, row) => { if (category === from) categoryOf[row] = into; });
    views[view].marks.forEach(mark => { if (mark[2] === from) mark[2] = into; });
    maps.forEach(map => map.recolour());
    find('.badge[data-group="' + from + '"]', panel)?.remove();
    articles[from].hidden = legend[from].hidden = true;
    delete newNames[from];
    sizes[into] += sizes[from];
    sizes[from] = 0;
    mergeCards(from, into);
    mergeInTables(view, from, into);
    find('small', legend[into]).textContent = percent(share(into));
    findAll('.branch', panel).forEach(branch => branch.remove()); // they hold the groups before the merge
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
