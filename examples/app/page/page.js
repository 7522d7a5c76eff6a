// The page. It asks the app's server who is signed in, and Tideline for posts and follows.

import { listen } from './live.js';

const at = (id) => document.getElementById(id);

// --- The app

// app calls the app's own server. Its errors have a message to show to the user.
async function app(path, body = {}) {
  const response = await fetch(path, { method: 'POST', body: JSON.stringify(body) }).catch(() => null);
  if (!response) throw new Error('The app cannot be reached. Try again.');
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({ error: 'That did not work. Try again.' }));
  if (!response.ok) throw Object.assign(new Error(answer.error), { status: response.status });
  return answer;
}

let pass = null; // { token, graphql, until }

// token returns a Tideline token, and renews it 30 seconds before it expires. If the user is
// no longer signed in, it shows the sign-in form and returns null.
async function token(anew = false) {
  if (anew || !pass || Date.now() > pass.until) {
    try {
      const { token, seconds, graphql } = await app('/token');
      pass = { token, graphql, until: Date.now() + (seconds - 30) * 1000 };
    } catch (error) {
      if (error.status !== 401) throw error;
      show('outside');
      return null;
    }
  }
  return pass.token;
}

// --- Tideline

async function tideline(query, variables, again = true) {
  const bearer = await token();
  if (bearer === null) throw new Error('You are signed out.');
  const response = await fetch(pass.graphql, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${bearer}` },
    body: JSON.stringify({ query, variables }),
  }).catch(() => null);
  const answer = await response?.json().catch(() => null);
  if (!answer) throw new Error('Tideline cannot be reached. Try again in a moment.');
  const [error] = answer.errors ?? [];
  if (error?.extensions?.code === 'UNAUTHENTICATED' && again) {
    pass = null;
    return tideline(query, variables, false);
  }
  if (error) throw new Error(error.message);
  return answer.data;
}

const entry = 'score node { id text createdAt author { id handle name } }';

const readPage = `query ($after: Cursor) {
  viewer { id handle name }
  timeline(first: 20, after: $after) { position edges { ${entry} } pageInfo { hasNextPage endCursor } }
  users(first: 50) { nodes { id handle name relationship { following } } } }`;

// --- The view

let me, entries, older, stop;

// attempt runs the action of a button, and shows the error if it fails.
async function attempt(what, button) {
  if (button) button.disabled = true;
  try {
    await what();
    at('error').hidden = true;
  } catch (error) {
    at('error').textContent = error.message;
    at('error').hidden = false;
  } finally {
    if (button) button.disabled = false;
  }
}

function show(which) {
  at('inside').hidden = which !== 'inside';
  at('outside').hidden = which !== 'outside';
  at('sign-out').hidden = which !== 'inside';
  if (which === 'inside') return;
  stop?.();
  clearTimeout(retry);
  stop = pass = null;
  status('');
  at('me').textContent = '';
  at('posts').replaceChildren();
  at('text').value = '';
  at('sure').close();
}

function status(text) {
  at('status').textContent = { live: 'Live', reconnecting: 'Connecting …', '': '' }[text];
  at('status').classList.toggle('waiting', text !== 'live');
}

function element(name, className, ...content) {
  const e = document.createElement(name);
  e.className = className;
  e.append(...content);
  return e;
}

function postOf({ node: { id, text, createdAt, author } }) {
  const time = element('time', '', new Date(createdAt).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' }));
  time.dateTime = createdAt;
  const post = element('li', '',
    element('p', 'by', element('strong', '', author.name), element('span', 'handle', `@${author.handle}`), time),
    element('p', 'text', text));
  post.dataset.id = id;
  return post;
}

// add inserts entries by score, the highest first, and skips those already shown.
function add(edges, arriving) {
  for (const edge of edges) {
    if (entries.some((e) => e.node.id === edge.node.id)) continue;
    const place = entries.findIndex((e) => e.score < edge.score);
    const post = postOf(edge);
    post.classList.toggle('new', arriving);
    at('posts').insertBefore(post, place < 0 ? null : at('posts').children[place]);
    entries.splice(place < 0 ? entries.length : place, 0, edge);
  }
  at('empty').hidden = entries.length > 0;
}

function remove(id) {
  entries = entries.filter((e) => e.node.id !== id);
  at('posts').querySelector(`[data-id="${CSS.escape(id)}"]`)?.remove();
  at('empty').hidden = entries.length > 0;
}

function showPeople(users) {
  const others = users.filter((u) => u.id !== me.id);
  at('nobody').hidden = others.length > 0;
  at('people').replaceChildren(...others.map((u) => {
    const { following } = u.relationship;
    const button = element('button', following ? 'quiet' : '', following ? 'Unfollow' : 'Follow');
    button.setAttribute('aria-label', `${button.textContent} ${u.name}`);
    button.onclick = () => attempt(async () => {
      await tideline(`mutation ($id: ID!) { ${following ? 'unfollow' : 'follow'}(input: { userId: $id }) { user { id } } }`, { id: u.id });
      await read();
    }, button);
    return element('li', '', element('div', 'who', element('div', '', u.name), element('div', 'handle', `@${u.handle}`)), button);
  }));
}

// read reads the newest page, and subscribes to the events after its position.
async function read() {
  const data = await tideline(readPage);
  if (!data.viewer) return;
  me = data.viewer;
  at('me').textContent = `${me.name} · @${me.handle}`;
  entries = [];
  at('posts').replaceChildren();
  add(data.timeline.edges, false);
  older = data.timeline.pageInfo;
  at('older').hidden = !older.hasNextPage;
  showPeople(data.users.nodes);
  show('inside');
  stop?.();
  stop = listen({ url: pass.graphql.replace(/^http/, 'ws'), position: data.timeline.position, token, status, event });
}

function event(e) {
  if (e.__typename === 'TimelinePostAdded') add([e.edge], true);
  if (e.__typename === 'TimelinePostRemoved') remove(e.postId);
  if (e.__typename === 'TimelineInvalidated') refresh();
}

// refresh reads the page, and tries again after three seconds if that fails.
let retry;
async function refresh() {
  clearTimeout(retry);
  await attempt(async () => {
    try {
      if (await token()) await read();
    } catch (error) {
      retry = setTimeout(refresh, 3000);
      throw error;
    }
  });
}

// --- Buttons

at('sign-in').onsubmit = (submit) => {
  submit.preventDefault();
  attempt(async () => {
    await app('/sign-in', { name: at('name').value });
    await read();
    at('text').focus();
  }, submit.submitter);
};

let key; // the idempotency key: the same for each attempt, so that the post is created once
at('text').oninput = () => { key = null; };
at('compose').onsubmit = (submit) => {
  submit.preventDefault();
  attempt(async () => {
    key ??= `${Date.now()}-${Math.random()}`;
    const { createPost } = await tideline(
      `mutation ($text: String!, $key: String!) { createPost(input: { text: $text, idempotencyKey: $key }) { edge { ${entry} } } }`,
      { text: at('text').value, key });
    at('text').value = '';
    key = null;
    add([createPost.edge], true);
  }, submit.submitter);
};
at('text').onkeydown = (press) => {
  if (press.key === 'Enter' && (press.ctrlKey || press.metaKey)) at('compose').requestSubmit();
};

at('older').onclick = () => attempt(async () => {
  const { timeline } = await tideline(readPage, { after: older.endCursor });
  add(timeline.edges, false);
  older = timeline.pageInfo;
  at('older').hidden = !older.hasNextPage;
}, at('older'));

at('sign-out').onclick = () => attempt(async () => {
  await app('/sign-out');
  show('outside');
});

at('leave').onclick = () => at('sure').showModal();
at('sure').onclose = () => {
  if (at('sure').returnValue !== 'delete') return;
  at('sure').returnValue = '';
  attempt(async () => {
    show('leaving'); // stops using the token: after the deletion it would create a new user
    try {
      await app('/delete-account');
      show('outside');
    } catch (error) {
      refresh();
      throw error;
    }
  });
};

// Another user may have signed in meanwhile.
addEventListener('focus', () => {
  if (!at('inside').hidden) tideline(readPage).then((data) => showPeople(data.users.nodes), () => {});
});

refresh();
