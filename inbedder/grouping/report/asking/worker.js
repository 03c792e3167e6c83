// A worker that reads texts and answers questions about them with the weights in the page (backbones/page_weights.py).
// Texts are read once, by the base, and keep their keys and values in int8; a question then costs a few mask tokens per text
// (backbones/late_interaction.py). Matrices are row by row in Float32Arrays; tile.wat multiplies 4 rows by 8 columns.
const BATCH = 128, BLOCK = 128, STARTS = 5, STEPS = 30;
const memory = new WebAssembly.Memory({ initial: 1 });
let tile, settings, tensors, tokenIds, merged = {}, readTexts = [];

const decode = (text, size) => { // two of 91 characters are 13 bits; < is left out (further_questions.py)
  const output = new Uint8Array(size), digit = i => { const code = text.charCodeAt(i); return code - (code > 60 ? 36 : 35); };
  for (let i = 0, at = 0, bits = 0, count = 0; i < text.length; i += 2) {
    bits = bits << 13 | digit(i) * 91 + digit(i + 1);
    for (count += 13; count >= 8; bits &= (1 << count) - 1) output[at++] = bits >> (count -= 8);
  }
  return output;
};
const open = async ({ wasm, weights, size, shapes, ...rest }) => {
  settings = rest;
  const code = Uint8Array.from(atob(wasm), character => character.charCodeAt(0));
  tile = (await WebAssembly.instantiate(code, { env: { memory } })).instance.exports.tile;
  const bytes = await new Response(new Blob([decode(weights, size)]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
  let at = 0;
  const take = (type, count) => new type(bytes.slice(at, at += count * type.BYTES_PER_ELEMENT));
  tensors = {};
  for (const [name, rows, columns, isInteger] of shapes) {
    const values = take(isInteger ? Int8Array : Float32Array, rows * columns);
    tensors[name] = { values, rows, columns, scales: isInteger && take(Float32Array, rows) };
  }
  tokenIds = new Map(settings.tokens.map((token, id) => [token, id]));
};

// Multiply x, (m, columns), by the transpose of a matrix, (rows, columns), and add a bias: (m, rows)
const multiply = (x, { values, scales, rows, columns }, bias = new Float32Array(rows)) => {
  const m = x.length / columns, paddedM = Math.ceil(m / 4) * 4, paddedRows = Math.ceil(rows / 8) * 8;
  const b = paddedM * columns, c = b + paddedRows * columns, missing = (c + paddedM * paddedRows) * 4 - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / 65536));
  const floats = new Float32Array(memory.buffer);
  floats.set(x);
  floats.fill(0, x.length, b);
  if (paddedRows > rows) floats.fill(0, b, c);
  for (let row = 0; row < rows; row++) {
    const scale = scales ? scales[row] : 1;
    let to = b + (row >> 3) * 8 * columns + (row & 7);
    for (let from = row * columns, end = from + columns; from < end; from++, to += 8) floats[to] = values[from] * scale;
  }
  for (let first = 0; first < paddedM; first += BLOCK)
    for (let column = 0; column < paddedRows; column += 8)
      for (let row = first, end = Math.min(first + BLOCK, paddedM); row < end; row += 4)
        tile(row * columns * 4, (b + column * columns) * 4, (c + row * paddedRows + column) * 4, columns, paddedRows * 4);
  const output = new Float32Array(m * rows);
  for (let row = 0; row < m; row++) for (let i = 0; i < rows; i++) output[row * rows + i] = floats[c + row * paddedRows + i] + bias[i];
  return output;
};
const rowOf = ({ values, scales, columns }, row, output) => {
  for (let i = 0; i < columns; i++) output[i] = values[row * columns + i] * scales[row];
  return output;
};
const transpose = matrix => {
  const { rows, columns } = matrix, values = new Float32Array(rows * columns), line = new Float32Array(columns);
  for (let row = 0; row < rows; row++) {
    rowOf(matrix, row, line);
    for (let i = 0; i < columns; i++) values[i * rows + row] = line[i];
  }
  return { values, rows: columns, columns: rows };
};
const weightsOf = (side, name) => {
  if (side === 'text') return tensors[name];
  if (merged[name]) return merged[name];
  const { rows, columns, values, scales } = tensors[name];
  const sum = multiply(transpose(tensors[name + '.up']).values, transpose(tensors[name + '.down']));
  for (let i = 0; i < sum.length; i++) sum[i] += values[i] * scales[Math.floor(i / columns)];
  return merged[name] = { values: sum, rows, columns };
};

const normalize = (x, name, earlier) => { // layer norm of a sum, in place
  const weight = tensors[name + '.weight'].values, bias = tensors[name + '.bias'].values, width = weight.length;
  for (let start = 0; start < x.length; start += width) {
    let mean = 0, variance = 0;
    if (earlier) for (let i = 0; i < width; i++) x[start + i] += earlier[start + i];
    for (let i = 0; i < width; i++) mean += x[start + i] / width;
    for (let i = 0; i < width; i++) variance += (x[start + i] - mean) ** 2 / width;
    const factor = 1 / Math.sqrt(variance + settings.epsilon);
    for (let i = 0; i < width; i++) x[start + i] = (x[start + i] - mean) * factor * weight[i] + bias[i];
  }
  return x;
};
const GELU_STEPS = 512, GELU_END = 8;
const geluTable = Float32Array.from({ length: 2 * GELU_END * GELU_STEPS + 2 }, (_, i) => { // Abramowitz and Stegun 7.1.26
  const x = i / GELU_STEPS - GELU_END, z = Math.abs(x) / Math.SQRT2, t = 1 / (1 + 0.3275911 * z);
  const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-z * z);
  return x * (x < 0 ? tail / 2 : 1 - tail / 2);
});
const gelu = x => { // in place, interpolated
  for (let i = 0; i < x.length; i++) {
    if (x[i] >= GELU_END || x[i] <= -GELU_END) { x[i] = Math.max(x[i], 0); continue; }
    const place = (x[i] + GELU_END) * GELU_STEPS, step = Math.floor(place);
    x[i] = geluTable[step] + (place - step) * (geluTable[step + 1] - geluTable[step]);
  }
  return x;
};
const unit = vector => {
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0)) || 1;
  return vector.map(value => value / length);
};
const meanOf = (x, first, count) => {
  const { width } = settings, mean = new Float32Array(width);
  for (let row = first; row < first + count; row++) for (let i = 0; i < width; i++) mean[i] += x[row * width + i] / count;
  return mean;
};

const embed = (side, ids, positions) => {
  const { width } = settings, x = new Float32Array(ids.length * width), word = new Float32Array(width), place = new Float32Array(width);
  const type = tensors[side + '.type'].values;
  ids.forEach((id, row) => {
    rowOf(tensors.words, id, word);
    rowOf(tensors.positions, positions[row], place);
    for (let i = 0; i < width; i++) x[row * width + i] = word[i] + place[i] + type[i];
  });
  return normalize(x, side + '.norm');
};
const attend = (query, first, count, keys, values, output) => { // rows first .. first + count of query to all keys
  const { width, heads } = settings, size = width / heads, total = keys.length / width, shares = new Float32Array(total);
  const factor = 1 / Math.sqrt(size);
  for (let from = first * width; from < (first + count) * width; from += size) {
    const start = from % width;
    let largest = -Infinity, sum = 0;
    for (let key = 0; key < total; key++) {
      let a = 0, b = 0, c = 0, d = 0; // four sums at once, which do not wait for each other
      for (let i = from, to = key * width + start; i < from + size; i += 4, to += 4) {
        a += query[i] * keys[to];
        b += query[i + 1] * keys[to + 1];
        c += query[i + 2] * keys[to + 2];
        d += query[i + 3] * keys[to + 3];
      }
      shares[key] = (a + b + c + d) * factor;
      if (shares[key] > largest) largest = shares[key];
    }
    for (let key = 0; key < total; key++) sum += shares[key] = Math.exp(shares[key] - largest);
    for (let i = 0; i < size; i += 4) {
      let a = 0, b = 0, c = 0, d = 0;
      for (let key = 0, to = start + i; key < total; key++, to += width) {
        const share = shares[key];
        a += share * values[to];
        b += share * values[to + 1];
        c += share * values[to + 2];
        d += share * values[to + 3];
      }
      output[from + i] = a / sum;
      output[from + i + 1] = b / sum;
      output[from + i + 2] = c / sum;
      output[from + i + 3] = d / sum;
    }
  }
};
const runLayers = (side, x, mix) => { // mix(layer, query, key, value, output) attends
  for (let layer = 0; layer < settings.layers; layer++) {
    const linear = (input, part) => multiply(input, weightsOf(side, layer + '.' + part), tensors[`${side}.${layer}.${part}.bias`].values);
    const attended = new Float32Array(x.length);
    mix(layer, linear(x, 'query'), linear(x, 'key'), linear(x, 'value'), attended);
    x = normalize(linear(attended, 'mix'), `${side}.${layer}.mixed`, x);
    x = normalize(linear(gelu(linear(x, 'expand')), 'contract'), `${side}.${layer}.done`, x);
  }
  return x;
};

const toInt8 = states => { // one scale per row
  const { width } = settings, values = new Int8Array(states.length), scales = new Float32Array(states.length / width);
  for (let row = 0; row < scales.length; row++) {
    let largest = 0;
    for (let i = 0; i < width; i++) largest = Math.max(largest, Math.abs(states[row * width + i]));
    scales[row] = largest / 127 || 1;
    for (let i = 0; i < width; i++) values[row * width + i] = Math.round(states[row * width + i] / scales[row]);
  }
  return { values, scales, columns: width };
};
const readBatch = texts => { // each text is its ids
  const { width } = settings, starts = [0];
  texts.forEach(ids => starts.push(starts.at(-1) + ids.length));
  const kept = texts.map(ids => ({ ids, keys: [], values: [] }));
  const states = runLayers('text', embed('text', texts.flat(), texts.flatMap(ids => ids.map((_, i) => i))), (_, query, key, value, output) => {
    kept.forEach((text, i) => {
      const [keys, values] = [key, value].map(part => part.subarray(starts[i] * width, starts[i + 1] * width));
      attend(query, starts[i], starts[i + 1] - starts[i], keys, values, output);
      text.keys.push(toInt8(keys));
      text.values.push(toInt8(values));
    });
  });
  kept.forEach((text, i) => { text.base = unit(meanOf(states, starts[i], starts[i + 1] - starts[i])); });
  readTexts.push(...kept);
};

const tokenize = question => {
  const words = question.normalize('NFD').replace(/\p{Mn}/gu, '').toLowerCase().match(/[\p{P}$+<=>^`|~]|\p{Script=Han}|[^\s\p{P}$+<=>^`|~\p{Script=Han}]+/gu) || [];
  return words.flatMap(word => {
    const ids = [];
    for (let start = 0; start < word.length;) {
      let end = word.length;
      while (end > start && !tokenIds.has((start ? '##' : '') + word.slice(start, end))) end--;
      if (end === start) return [settings.unknown];
      ids.push(tokenIds.get((start ? '##' : '') + word.slice(start, end)));
      start = end;
    }
    return ids;
  }).slice(0, settings.maxTokens);
};
const isPiece = id => settings.tokens[id].startsWith('##') && settings.tokens[id].length > 2;
const stemOf = id => settings.tokens[id].replace(/s+$/, '').slice(0, settings.stemLetters) || ' ' + id;
const fillMasks = (scores, ids) => { // scores: (masks, tokens); ids: those of the prompt. The rules are those of backbones/masked.py
  const { tokens, special, end } = settings, inPrompt = new Set(ids), stems = new Set(), answer = [];
  for (let mask = 0; mask < settings.masks; mask++) {
    const followers = new Set(ids.filter((id, i) => i && answer.length && ids[i - 1] === answer.at(-1) && isPiece(id)));
    let best = -1;
    for (let id = 0; id < tokens.length; id++) {
      const score = scores[mask * tokens.length + id];
      if (best >= 0 && score <= scores[mask * tokens.length + best]) continue;
      if (id === end ? mask === 0 : special.includes(id)) continue;
      const isUsed = isPiece(id) || stems.has(stemOf(id)) || (/^[a-z]$|[^\P{L}a-zA-Z]/u.test(tokens[id]) && !inPrompt.has(id));
      if (!isUsed || followers.has(id)) best = id;
    }
    if (best < 0 || best === end) break;
    if (!isPiece(best)) stems.add(stemOf(best));
    answer.push(best);
  }
  return answer.map(id => tokens[id]).join(' ').replaceAll(' ##', '');
};

const ask = (question, report) => {
  const { width, masks } = settings, asked = [...tokenize(question), settings.end], states = { keys: [], values: [] };
  const questionStates = runLayers('pair', embed('pair', asked, asked.map((_, i) => i)), (_, query, key, value, output) => {
    attend(query, 0, asked.length, key, value, output);
    states.keys.push(key);
    states.values.push(value);
  });
  const gate = tensors.gate.values, mean = meanOf(questionStates, 0, asked.length);
  const share = 1 / (1 + Math.exp(-mean.reduce((sum, value, i) => sum + value * gate[i], gate[width])));
  const vectors = [], answers = [];
  for (let first = 0; first < readTexts.length; first += BATCH) {
    const texts = readTexts.slice(first, first + BATCH), ids = Array(masks * texts.length).fill(settings.mask);
    const x = runLayers('pair', embed('pair', ids, ids.map((_, i) => asked.length + i % masks)), (layer, query, key, value, output) => {
      texts.forEach((text, i) => {
        const [keys, values] = [[key, 'keys'], [value, 'values']].map(([own, kind]) => {
          const stored = text[kind][layer], before = masks * width + asked.length * width;
          const all = new Float32Array(before + stored.values.length);
          all.set(own.subarray(i * masks * width, (i + 1) * masks * width));
          all.set(states[kind][layer], masks * width);
          for (let row = 0; row < stored.scales.length; row++) rowOf(stored, row, all.subarray(before + row * width, before + (row + 1) * width));
          return all;
        });
        attend(query, i * masks, masks, keys, values, output);
      });
    });
    const transformed = normalize(gelu(multiply(x, tensors.head, tensors['head.bias'].values)), 'head.norm');
    const scores = multiply(transformed, tensors.words, tensors['words.bias'].values);
    texts.forEach((text, i) => {
      const own = unit(meanOf(x, i * masks, masks));
      vectors.push(unit(own.map((value, j) => (1 - share) * value + share * text.base[j])));
      answers.push(fillMasks(scores.subarray(i * masks * settings.tokens.length, (i + 1) * masks * settings.tokens.length), [...text.ids, ...asked]));
    });
    report(texts.length);
  }
  return { vectors, answers };
};

// Spherical k-means with seeds far apart, the best of several starts
const dot = (a, b) => { let sum = 0; for (let i = 0; i < a.length; i++) sum += a[i] * b[i]; return sum; };
const findNearest = (vector, centres) => {
  let group = 0, likeness = -Infinity;
  for (let i = 0; i < centres.length; i++) {
    const product = dot(vector, centres[i]);
    if (product > likeness) [group, likeness] = [i, product];
  }
  return { group, likeness };
};
const group = (vectors, k) => {
  let state = 1, best = null;
  const random = () => { // mulberry32
    state = state + 0x6D2B79F5 | 0;
    let t = Math.imul(state ^ state >>> 15, 1 | state);
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
    return ((t ^ t >>> 14) >>> 0) / 4294967296;
  };
  for (let start = 0; start < STARTS; start++) {
    let centres = [vectors[Math.floor(random() * vectors.length)]], nearest = [];
    while (centres.length < k) {
      const distances = vectors.map(vector => Math.max(0, 1 - findNearest(vector, centres).likeness));
      let rest = random() * distances.reduce((sum, distance) => sum + distance, 0);
      const seed = distances.findIndex(distance => (rest -= distance) < 0);
      centres.push(vectors[Math.max(seed, 0)]);
    }
    for (let step = 0; step < STEPS; step++) {
      const before = nearest, sums = centres.map(() => new Float32Array(settings.width)), counts = centres.map(() => 0);
      nearest = vectors.map(vector => findNearest(vector, centres));
      if (nearest.every((one, i) => before[i] && one.group === before[i].group)) break;
      nearest.forEach(({ group }, i) => {
        counts[group]++;
        for (let j = 0; j < settings.width; j++) sums[group][j] += vectors[i][j];
      });
      centres = centres.map((centre, i) => counts[i] ? unit(sums[i]) : centre);
    }
    const total = nearest.reduce((sum, one) => sum + one.likeness, 0);
    if (!best || total > best.total) best = { total, groupOf: nearest.map(one => one.group), likeness: nearest.map(one => one.likeness) };
  }
  return best;
};

const tasks = {
  open,
  read: ({ texts }, report) => {
    for (let first = 0; first < texts.length; first += BATCH) {
      readBatch(texts.slice(first, first + BATCH));
      report(Math.min(BATCH, texts.length - first));
    }
  },
  ask: ({ question }, report) => ask(question, report),
  group: ({ vectors, k }) => group(vectors, k),
};
onmessage = async ({ data: { task, ...values } }) => {
  try {
    postMessage({ result: await tasks[task](values, done => postMessage({ done })) });
  } catch (error) {
    postMessage({ error: String(error) });
  }
};
