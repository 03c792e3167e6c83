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
