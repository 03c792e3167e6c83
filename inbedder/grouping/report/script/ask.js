// Ask: workers read the texts once, answer a further question about them, and group the answers (asking/worker.js)
const ask = find('#ask');
if (ask) {
  const { rows: askedRows, texts: tokensOfTexts, colours, ...model } = JSON.parse(find('#ask-data').textContent);
  const form = find('form', ask), status = find('.ask-status', ask), cards = find('.cards', ask), tools = find('.actions', ask);
  const MAX_WORKERS = 4, MAX_WORDS = 3, MIN_SHARE = 0.1, EXAMPLES = 3, ANSWERS = 5;
  let workers = [], reading = null, isBusy = false, asked = null;

  const call = (worker, task, values, report = () => {}) => new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => data.done ? report(data.done) : data.error ? reject(new Error(data.error)) : resolve(data.result);
    worker.onerror = event => reject(new Error(event.message));
    worker.postMessage({ task, ...values });
  });
  const showProgress = (verb, total) => {
    let done = 0;
    status.textContent = verb + ' …';
    return count => { done += count; status.textContent = verb + ': ' + done.toLocaleString('en') + ' of ' + countLabel(total, 'text'); };
  };
  const read = async () => {
    const report = showProgress('Reading', askedRows.length), weights = find('#ask-weights').textContent;
    const url = URL.createObjectURL(new Blob([find('#ask-worker').textContent], { type: 'text/javascript' }));
    workers = Array.from({ length: Math.min(navigator.hardwareConcurrency || 2, MAX_WORKERS, askedRows.length) }, () => new Worker(url));
    await Promise.all(workers.map(async (worker, i) => {
      await call(worker, 'open', { ...model, weights });
      await call(worker, 'read', { texts: tokensOfTexts.filter((_, row) => row % workers.length === i) }, report);
    }));
    URL.revokeObjectURL(url);
    status.textContent = 'The texts are read. A question takes a few seconds.';
  };
  const startReading = () => reading ||= read().catch(error => { reading = null; workers.forEach(worker => worker.terminate()); throw error; });

  // A group's name: the words that are in more of its answers than elsewhere (TF-IDF of the groups)
  const nameGroup = (members, answers) => {
    const countWords = rows => {
      const counts = new Map();
      rows.forEach(row => new Set(answers[row].split(' ').filter(Boolean)).forEach(word => counts.set(word, (counts.get(word) || 0) + 1)));
      return counts;
    };
    const own = countWords(members), all = countWords(answers.map((_, row) => row));
    const score = word => own.get(word) * Math.log(1 + own.get(word) / members.length / (all.get(word) / answers.length));
    const words = [...own.keys()].sort((a, b) => score(b) - score(a)).filter((word, i) => !i || own.get(word) >= MIN_SHARE * members.length);
    return words.slice(0, MAX_WORDS).join(', ') || 'no answer';
  };
  const listCounts = answers => {
    const counts = new Map();
    answers.filter(Boolean).forEach(answer => counts.set(answer, (counts.get(answer) || 0) + 1));
    return [...counts].sort((a, b) => b[1] - a[1]).slice(0, ANSWERS);
  };
  const addList = (card, title, className, lines) => {
    const list = element('ul', '', className);
    lines.forEach(line => { const item = element('li', ''); item.append(...line); item.dir = 'auto'; list.append(item); });
    if (lines.length) card.append(element('h4', title), list);
  };
  const makeCard = ({ name, members }, number) => {
    const card = element('article', '', 'card c' + (number < colours ? number : 'none')), share = members.length / askedRows.length;
    const title = element('div', '', 'title'), bar = element('div', '', 'bar'), button = element('button', 'Read ' + (members.length === 1 ? 'this text' : 'these texts'), 'open');
    title.append(element('span', number + 1, 'number'), element('h3', name));
    bar.append(element('i', ''));
    bar.firstChild.style.setProperty('--w', 100 * share);
    card.append(title, element('p', countLabel(members.length, 'text') + ' · ' + percent(share), 'size'), bar);
    addList(card, 'Most frequent answers', 'counts answers', listCounts(members.map(row => asked.answers[row])).map(([answer, count]) => [element('bdi', answer), ' ', element('b', count.toLocaleString('en'))]));
    addList(card, 'Central examples', 'quotes', members.slice(0, EXAMPLES).map(row => [texts[askedRows[row]]]));
    button.type = 'button';
    button.addEventListener('click', () => openTexts([], button, { view: 0, rows: members.map(row => askedRows[row]), label: 'the group “' + name + '” of “' + asked.question + '”' }));
    card.append(button);
    return card;
  };
  const answer = async (question, k) => {
    await startReading();
    const report = showProgress('Answering', askedRows.length), results = await Promise.all(workers.map(worker => call(worker, 'ask', { question }, report)));
    const merge = kind => askedRows.map((_, row) => results[row % workers.length][kind][Math.floor(row / workers.length)]);
    const [vectors, answers] = [merge('vectors'), merge('answers')];
    status.textContent = 'Grouping …';
    const { groupOf, likeness } = await call(workers[0], 'group', { vectors, k: Math.min(k, vectors.length) });
    const parts = Array.from({ length: k }, (_, i) => groupOf.flatMap((group, row) => group === i ? [row] : [])).filter(members => members.length);
    const membersOfName = new Map(); // groups with one name are one
    parts.forEach(members => { const name = nameGroup(members, answers); membersOfName.set(name, [...(membersOfName.get(name) || []), ...members]); });
    const groups = [...membersOfName].map(([name, members]) => ({ name, members: members.sort((a, b) => likeness[b] - likeness[a]) }));
    asked = { question, answers, groups: groups.sort((a, b) => b.members.length - a.members.length) };
    cards.replaceChildren(...asked.groups.map(makeCard));
    status.textContent = countLabel(askedRows.length, 'text') + ' in ' + countLabel(groups.length, 'group') + ' by their answers to “' + question + '”.';
    tools.hidden = false;
  };
  const describeError = error => 'This browser cannot run the model (' + error.message + '). A current Chrome, Edge, Firefox or Safari can.';
  form.addEventListener('submit', async event => {
    event.preventDefault();
    const question = form.elements.question.value.trim();
    if (!question || isBusy) return;
    isBusy = find('button', form).disabled = true;
    try {
      await answer(question, Number(form.elements.groups.value));
    } catch (error) {
      status.textContent = describeError(error);
    }
    isBusy = find('button', form).disabled = false;
  });
  form.elements.question.addEventListener('focus', () => startReading().catch(error => { status.textContent = describeError(error); }), { once: true });
  find('button', tools).addEventListener('click', () => {
    const lines = [['row', 'text', asked.question + ' (number)', asked.question + ' (group)', asked.question + ' (answer)']];
    asked.groups.forEach(({ name, members }, i) => members.forEach(row => lines.push([numbers[askedRows[row]], texts[askedRows[row]], i + 1, name, asked.answers[row]])));
    saveFile(['\ufeff', lines.map(line => line.map(quoteForCsv).join(',') + '\r\n').join('')], 'text/csv;charset=utf-8', 'answers.csv');
  });
}
