// Cross tables and charts after groups were merged or texts moved: the numbers of CrossTable in crosstab.py
const MAX_FALSE_DISCOVERY_RATE = 0.05;
const logFactorials = [0];
const logFactorial = n => {
  for (let i = logFactorials.length; i <= n; i++) logFactorials.push(logFactorials[i - 1] + Math.log(i));
  return logFactorials[n];
};
const logChoose = (n, k) => logFactorial(n) - logFactorial(k) - logFactorial(n - k);
const fisherTest = (count, inRow, inColumn, total) => { // two-sided: twice the smaller tail of the hypergeometric distribution
  const tail = (from, to) => {
    let share = 0;
    for (let i = Math.max(from, 0, inRow + inColumn - total); i <= Math.min(to, inRow, inColumn); i++) {
      share += Math.exp(logChoose(inColumn, i) + logChoose(total - inColumn, inRow - i) - logChoose(total, inRow));
    }
    return share;
  };
  return Math.min(1, 2 * Math.min(tail(0, count), tail(count, total)));
};
const findSignificant = tests => { // Benjamini and Hochberg: the largest rank whose p-value is low enough, and all below
  const order = [...tests].sort((a, b) => a.p - b.p);
  const last = order.findLastIndex(({ p }, rank) => p <= MAX_FALSE_DISCOVERY_RATE * (rank + 1) / order.length);
  return new Set(order.slice(0, last + 1));
};
const retabulate = table => {
  const { counts } = table, total = sum(counts.map(sum)), inRow = counts.map(sum);
  const inColumn = counts[0].map((_, j) => sum(counts.map(line => line[j]))), tests = [];
  let chiSquare = 0;
  counts.forEach((line, i) => line.forEach((count, j) => {
    const expected = inRow[i] * inColumn[j] / total, variance = expected * (1 - inRow[i] / total) * (1 - inColumn[j] / total);
    table.lift[i][j] = expected ? count / expected : null;
    table.residuals[i][j] = variance > 0 ? (count - expected) / Math.sqrt(variance) : 0;
    table.differs[i][j] = 0;
    if (expected) chiSquare += (count - expected) ** 2 / expected;
    if (variance > 0) tests.push({ i, j, p: fisherTest(count, inRow[i], inColumn[j], total) });
  }));
  findSignificant(tests).forEach(({ i, j }) => { table.differs[i][j] = Math.sign(table.residuals[i][j]); });
  const smaller = Math.min(inRow.filter(Boolean).length, inColumn.filter(Boolean).length);
  return smaller > 1 ? Math.sqrt(chiSquare / total / (smaller - 1)) : 0;
};
const describeStrength = (strength, isSignificant) => strength < 0.1 || !isSignificant ? 'Unrelated, as far as these texts show'
  : strength < 0.3 ? 'Weakly related' : strength < 0.6 ? 'Clearly related' : strength < 0.9999 ? 'Strongly related: one tells much of the other' : 'The same';
const drawTable = (heatmap, table, strength) => {
  const kind = find('.cell-content').value, lines = [...heatmap.tBodies[0].rows];
  findAll('button', heatmap).forEach(button => {
    const { row: i, column: j } = button.dataset, sign = table.differs[i][j], cell = button.parentElement, inRow = sum(table.counts[i]);
    const share = Math.max(-1, Math.min(1, table.residuals[i][j] / 8));
    cell.className = (share > 0 ? 'more' : 'less') + (table.counts[i][j] ? '' : ' zero');
    cell.style.setProperty('--s', Math.abs(share).toFixed(2));
    findAll('.sign, .visually-hidden', button).forEach(mark => mark.remove());
    find('b', button).textContent = cellNumber(table, kind, i, j);
    find('small', button).textContent = percent(inRow ? table.counts[i][j] / inRow : 0);
    if (!sign) return;
    const mark = element('i', sign > 0 ? '▲' : '▼', 'sign');
    mark.setAttribute('aria-hidden', true);
    find('b', button).after(mark, element('span', sign > 0 ? 'significantly more' : 'significantly fewer', 'visually-hidden'));
  });
  lines.forEach((line, i) => { find('td.sum', line).textContent = sum(table.counts[i]); });
  const verdict = heatmap.closest('.pair')?.querySelector('.verdict');
  if (!verdict) return;
  find('b', verdict).textContent = describeStrength(strength, table.differs.some(line => line.some(Boolean)));
  find('span', verdict).textContent = strength.toFixed(2);
};
const changeTables = (dimension, groups, change) => tables.forEach((table, number) => { // recount those that have the groups
  if (table.rows !== dimension && table.columns !== dimension) return;
  const heatmap = find('.heatmap[data-table="' + number + '"]');
  change(table, heatmap);
  drawTable(heatmap, table, retabulate(table));
  findAll('.chart[data-table="' + number + '"]').forEach(chart => { if (groups.includes(Number(chart.dataset.row))) drawChart(chart, table); });
});
const mergeInTables = (dimension, from, into) => changeTables(dimension, [into], ({ rows, counts }, heatmap) => {
  if (rows === dimension) {
    counts[into] = counts[into].map((count, j) => count + counts[from][j]);
    counts[from] = counts[from].map(() => 0);
    heatmap.tBodies[0].rows[from].hidden = true;
    findAll('.chart[data-table="' + heatmap.dataset.table + '"][data-row="' + from + '"]').forEach(chart => { chart.closest('li').hidden = true; });
  } else {
    counts.forEach(line => { line[into] += line[from]; line[from] = 0; });
    [...heatmap.rows].forEach(line => { line.cells[from + 1].hidden = true; });
  }
});
const moveInTables = (dimension, moves, into) => changeTables(dimension, [into, ...moves.map(({ from }) => from)], ({ rows, columns, counts }) => {
  const isRow = rows === dimension, { categoryOf } = dimensions[isRow ? columns : rows];
  moves.forEach(({ row, from }) => {
    const other = categoryOf[row];
    if (other < 0) return;
    if (isRow) { counts[from][other]--; counts[into][other]++; } else { counts[other][from]--; counts[other][into]++; }
  });
});
const drawChart = (chart, table) => { // the trend of a changed group is not tested, so its line goes
  const row = Number(chart.dataset.row), item = chart.closest('li');
  const shares = table.counts[row].map((count, j) => { const inPeriod = sum(table.counts.map(line => line[j])); return inPeriod ? count / inPeriod : null; });
  const largest = Math.max(1e-9, ...shares), step = 300 / shares.length;
  find('.area', chart).setAttribute('d', shares.map((share, j) => share === null ? '' : 'M' + j * step + ' 80V' + (80 - 76 * share / largest) + 'h' + step + 'V80z').join(''));
  find('.line', chart).setAttribute('d', '');
  find('.trend', item).className = 'trend unclear';
  find('.trend', item).textContent = 'trend not tested after your changes';
  find('.axis span:nth-child(2)', item).textContent = 'up to ' + percent(largest);
  chart.setAttribute('aria-label', 'Shares of the changed group, at most ' + percent(largest));
};
const renameInTables = (dimension, number, name) => tables.forEach((table, i) => {
  const heatmap = find('.heatmap[data-table="' + i + '"]');
  if (table.rows === dimension) find('bdi', heatmap.tBodies[0].rows[number].cells[0]).textContent = name;
  if (table.columns === dimension) find('bdi', heatmap.tHead.rows[0].cells[number + 1]).textContent = name;
  if (table.rows === dimension) findAll('.chart[data-table="' + i + '"][data-row="' + number + '"]').forEach(chart => { find('bdi', chart.closest('li')).textContent = name; });
});
