// The names of the groups on a map, each where it covers no other
const NAME_CHARACTERS = 30, LINE = 15, NUMBER_RADIUS = 10;
const setLabel = (badge, name) => {
  if (badge) find('.name', badge).textContent = name.length > NAME_CHARACTERS ? name.slice(0, NAME_CHARACTERS - 1).trimEnd() + '…' : name;
};
const placeNames = (svg, [left, top], scale) => {
  const badges = findAll('.badge:not([hidden])', svg).map(badge => ({
    label: find('.name', badge), x: (badge.dataset.x - left) * scale, y: (badge.dataset.y - top) * scale,
  }));
  const boxes = badges.map(({ x, y }) => [x - NUMBER_RADIUS, y - NUMBER_RADIUS, x + NUMBER_RADIUS, y + NUMBER_RADIUS]);
  const isFree = box => box[0] >= 0 && box[2] <= svg.clientWidth && box[1] >= 0 && box[3] <= svg.clientHeight
    && !boxes.some(other => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1]);
  badges.forEach(({ label, x, y }) => {
    const length = label.getComputedTextLength(), gap = NUMBER_RADIUS + 4;
    const middle = Math.max(length / 2, Math.min(x, svg.clientWidth - length / 2)), isSeen = Math.abs(middle - x) < length / 2;
    const below = [middle - length / 2, y + gap - 4, middle + length / 2, y + gap - 4 + LINE];
    const above = [middle - length / 2, y - gap + 4 - LINE, middle + length / 2, y - gap + 4];
    const places = [ // on the right of the number, below, above, on the left
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
  });
};
