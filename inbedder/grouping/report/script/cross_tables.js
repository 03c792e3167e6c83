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
const cellNumber = (table, kind, i, j) => {
  const number = { count: table.counts, lift: table.lift, residual: table.residuals }[kind][i][j];
  return number === null ? '–' : kind === 'count' ? number : kind === 'lift' ? number.toFixed(2) : (number > 0 ? '+' : '') + number.toFixed(1);
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
    let [i, j] = cellPosition(button), next;
    do { i += step[0]; j += step[1]; next = (grid[i] || [])[j]; } while (next && !next.offsetParent); // past merged groups
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
      find('b', button).textContent = cellNumber(table, kind, button.dataset.row, button.dataset.column);
    });
  });
}));
