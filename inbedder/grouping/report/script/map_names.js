// The names of the groups on a map, and of answers when it is zoomed, each where it covers no other
const NAME_CHARACTERS = 30, LINE = 15, NUMBER_RADIUS = 10, DOT_RADIUS = 4, ANSWERS_PER_DOUBLING = 5;
const clipName = name => name.length > NAME_CHARACTERS ? name.slice(0, NAME_CHARACTERS - 1).trimEnd() + '…' : name;
const setLabel = (badge, name) => { if (badge) find('.name', badge).textContent = clipName(name); };
const countValues = values => values.reduce((counts, value) => counts.set(value, (counts.get(value) || 0) + 1), new Map());
const mostFrequentAnswer = answers => [...countValues(answers)].reduce((best, next) => next[1] > best[1] ? next : best, ['', 0])[0];
const placeNames = (svg, [left, top], scale, answers) => {
  const toPixels = ({ x, y }) => [(x - left) * scale, (y - top) * scale];
  const badges = findAll('.badge:not([hidden])', svg).map(badge => [find('.name', badge), ...toPixels(badge.dataset)]);
  const boxes = badges.map(([, x, y]) => [x - NUMBER_RADIUS, y - NUMBER_RADIUS, x + NUMBER_RADIUS, y + NUMBER_RADIUS]);
  const isFree = box => box[0] >= 0 && box[2] <= svg.clientWidth && box[1] >= 0 && box[3] <= svg.clientHeight
    && !boxes.some(other => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1]);
  const placeLabel = (label, x, y, radius) => {
    const length = label.getComputedTextLength(), gap = radius + 4;
    const middle = Math.max(length / 2, Math.min(x, svg.clientWidth - length / 2)), isSeen = Math.abs(middle - x) < length / 2;
    const below = [middle - length / 2, y + gap - 4, middle + length / 2, y + gap - 4 + LINE];
    const above = [middle - length / 2, y - gap + 4 - LINE, middle + length / 2, y - gap + 4];
    const places = [ // on the right of the number or dot, below, above, on the left
      ['start', gap, 0, [x + gap, y - LINE / 2, x + gap + length, y + LINE / 2]],
      ...(isSeen ? [['middle', middle - x, gap + 4, below], ['middle', middle - x, -gap - 4, above]] : []),
      ['end', -gap, 0, [x - gap - length, y - LINE / 2, x - gap, y + LINE / 2]],
    ];
    const place = places.find(([, , , box]) => isFree(box));
    label.classList.toggle('placed', Boolean(place));
    if (!place) return;
    const [anchor, dx, dy, box] = place;
    label.style.textAnchor = anchor;
    label.setAttribute('x', dx);
    label.setAttribute('y', dy);
    boxes.push(box);
  };
  badges.forEach(([label, x, y]) => placeLabel(label, x, y, NUMBER_RADIUS));
  const names = badges.filter(([label]) => label.classList.contains('placed')).map(([label]) => label.textContent.toLowerCase());
  const layer = find('.answers', svg);
  const labels = answers.filter(({ name }) => !names.includes(name.toLowerCase())).map(answer => {
    const label = createSvg('text', { class: 'name' }), group = createSvg('g', { transform: 'translate(' + answer.x + ' ' + answer.y + ')' });
    label.textContent = clipName(answer.name);
    group.append(createSvg('g', {}));
    group.firstChild.append(label);
    return [group, label, ...toPixels(answer)];
  });
  layer.replaceChildren(...labels.map(([group]) => group));
  labels.forEach(([, label, x, y]) => placeLabel(label, x, y, DOT_RADIUS));
};
