// The picture of a map with its question and legend, as it is seen
const PICTURE_SCALE = 2, LEGEND_WIDTH = 280, LEGEND_LINE = 22, TITLE_HEIGHT = 44, LEGEND_CHARACTERS = 34;
const VARIABLES = ['--card', '--ink', '--soft', '--line', '--cnone', ...Array.from({ length: 12 }, (_, i) => '--c' + i)];
const savePicture = (svg, question, legend) => {
  const items = findAll('li:not(.branch)', legend).filter(item => !item.hidden), { clientWidth, clientHeight } = svg;
  const width = clientWidth + LEGEND_WIDTH, height = TITLE_HEIGHT + Math.max(clientHeight, items.length * LEGEND_LINE) + 12;
  const picture = createSvg('svg', { width: width * PICTURE_SCALE, height: height * PICTURE_SCALE, viewBox: [0, 0, width, height].join(' ') });
  const addText = (text, x, y, size, weight, fill, anchor = 'start') => {
    const line = createSvg('text', { x, y, fill, 'font-size': size, 'font-weight': weight, 'text-anchor': anchor });
    line.textContent = text;
    picture.append(line);
  };
  const clip = (text, length) => text.length > length ? text.slice(0, length - 1).trimEnd() + '…' : text;
  const style = getComputedStyle(document.documentElement);
  VARIABLES.forEach(name => picture.style.setProperty(name, style.getPropertyValue(name)));
  picture.style.fontFamily = getComputedStyle(document.body).fontFamily;
  const rules = createSvg('style', {});
  rules.textContent = find('style').textContent.replace(/@media[^{]*\{(?:[^{}]|\{[^{}]*\})*\}/g, ''); // colours are those of the screen
  const map = svg.cloneNode(true);
  for (const [name, value] of Object.entries({ x: 0, y: TITLE_HEIGHT, width: clientWidth, height: clientHeight })) map.setAttribute(name, value);
  picture.append(rules, createSvg('rect', { width, height, fill: 'var(--card)' }), map);
  addText(clip(question, Math.floor(width / 9)), 12, 28, 18, 600, 'var(--ink)');
  items.forEach((item, i) => {
    const y = TITLE_HEIGHT + (i + 0.5) * LEGEND_LINE, name = (find('b', item).textContent + ' ' + find('span', item).textContent).replace(/\s+/g, ' ').trim();
    const mark = find('.mark', item).cloneNode(true);
    for (const [key, value] of Object.entries({ x: clientWidth + 12, y: y - 11, width: 14, height: 14 })) mark.setAttribute(key, value);
    picture.append(mark);
    addText(clip(name, LEGEND_CHARACTERS), clientWidth + 32, y, 13, 400, 'var(--ink)');
    addText(find('small', item).textContent, width - 12, y, 13, 400, 'var(--soft)', 'end');
  });
  const image = new Image(), canvas = element('canvas', '');
  canvas.width = width * PICTURE_SCALE;
  canvas.height = height * PICTURE_SCALE;
  image.onload = () => {
    canvas.getContext('2d').drawImage(image, 0, 0);
    canvas.toBlob(blob => saveFile([blob], 'image/png', 'map.png'));
  };
  image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(new XMLSerializer().serializeToString(picture));
};
