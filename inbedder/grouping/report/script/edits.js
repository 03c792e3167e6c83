// Changes of the groups
findAll('.cards').forEach((cards, view) => {
  const names = dimensions[view].names, panel = panels[view], bar = find('.changes', panel), articles = findAll('article', cards);
  const legend = findAll('.legend li', panel);
  const mergedInto = names.map((_, i) => i), newNames = {};
  const setName = (i, name) => {
    names[i] = name;
    find('h3', articles[i]).textContent = find('bdi', legend[i]).textContent = name;
    maps[view].rename(i, name);
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
    views[view].marks.forEach(mark => { if (mark[2] === from) mark[2] = into; });
    maps.forEach(map => map.recolour());
    find('.badge[data-group="' + from + '"]', panel)?.remove();
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
