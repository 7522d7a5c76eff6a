// Follows the timelines of many users, as programs do that lose their connection
// now and then, and keeps of each what it holds: what it read, and what it was
// told since. When told that the timeline was invalidated it reads again.
//
// usage: node crowd.mjs, with a line of JSON on standard input:
//
//   {"urls":["http://…/graphql"],"tokens":["…"],"steady":0}
//
// The clients of the first tokens, as many as "steady" says, keep each connection
// as long as it lasts, and return to the same server. Prints {"ready":true} when all
// are connected. At the line "calm" the others stop breaking theirs, at the line
// "report" it prints what each client holds, at the line "told" which events each
// got, heartbeats left out:
//
//   {"clients":[{"held":["id"],"twice":["id"],"resumed":3,"invalidated":1,"failed":[],"beat":1700000000000,"server":0}]}
//   {"told":[[{"at":1700000000000,"kind":"added","post":"id"}]]}
//
// It ends when its standard input does.
import { createInterface } from 'node:readline';
import { createClient } from 'graphql-ws';
import WebSocket from 'ws';

const events = `subscription($after: Cursor) {
  timelineEvents(after: $after, heartbeat: 1) {
    __typename
    ... on TimelinePostAdded { position edge { node { id text } } }
    ... on TimelinePostRemoved { position postId }
    ... on TimelineInvalidated { position reason }
    ... on TimelineHeartbeat { position }
  }
}`;
const page = `query($after: Cursor) {
  timeline(first: 100, after: $after) { nodes { id } pageInfo { hasNextPage endCursor } }
}`;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let restless = false; // whether clients break their connections

class Socket extends WebSocket {
  constructor(...args) {
    super(...args);
    // A browser keeps it to itself when a socket is closed that has yet to open.
    this.on('error', () => {});
  }

  // The package goes on listening to a socket that it has terminated, and its
  // next one has operations of the same id: what is still on its way would be
  // taken for an answer of the new one. A connection that broke brings nothing.
  close(...args) {
    this.onmessage = null;
    if (args[0] === 4499 && Math.random() < 0.5) this.terminate();
    else super.close(...args);
  }
}

class Follower {
  held = new Set();
  // What may be told although it is held: what a page brought, as the event was on
  // its way, and what was held when the timeline was invalidated,
  read = new Set();
  // but nothing that has been told since then.
  since = new Set();
  // What was removed while pages were on their way must not come back with them.
  gone = new Set();
  twice = [];
  failed = [];
  resumed = 0;
  invalidated = 0;
  position = null;
  beat = 0; // when it was told something, a heartbeat at least
  log = [];
  work = Promise.resolve();

  constructor(urls, token, steady) {
    this.urls = urls;
    this.token = token;
    this.server = Math.floor(Math.random() * urls.length); // which it goes to
    this.started = new Promise((resolve) => (this.begun = resolve));
    const follower = this;
    this.client = createClient({
      url: () => {
        if (!steady) this.server = (this.server + 1) % urls.length;
        return urls[this.server].replace('http', 'ws');
      },
      connectionParams: { Authorization: `Bearer ${token}` },
      webSocketImpl: Socket,
      retryAttempts: Infinity,
      shouldRetry: (reason) => !('code' in reason) || reason.code < 4400 || reason.code === 4499,
      retryWait: () => pause(50 + 200 * Math.random()),
      on: { connected: () => this.position && this.resumed++ },
    });
    this.client.subscribe(
      { query: events, variables: { get after() { return follower.position; } } },
      {
        next: ({ data, errors }) => (errors ? this.failed.push(errors) : this.told(data.timelineEvents)),
        error: (error) => this.failed.push(String(error.message ?? JSON.stringify(error))),
        complete: () => this.failed.push('completed'),
      },
    );
    if (!steady) this.fidget();
  }

  note(kind, post = '') {
    this.log.push({ at: Date.now(), kind, post });
  }

  told(event) {
    switch (event.__typename) {
      case 'TimelinePostAdded': {
        const { id, text } = event.edge.node;
        if (text.startsWith('secret')) this.failed.push(`was shown ${text}`);
        this.note('added', id);
        if (this.held.has(id) && !this.read.delete(id)) this.twice.push(id);
        this.held.add(id);
        this.since.add(id);
        this.gone.delete(id);
        break;
      }
      case 'TimelinePostRemoved':
        this.note('removed', event.postId);
        this.held.delete(event.postId);
        this.gone.add(event.postId);
        break;
      case 'TimelineInvalidated':
        this.note('invalidated');
        this.invalidated++;
        this.read = new Set(this.held);
        this.since.clear();
        this.reread();
    }
    this.position = event.position;
    this.beat = Date.now();
    this.begun();
  }

  // What is told while pages are on their way is told of the time after them.
  reread() {
    this.work = this.work.then(async () => {
      const before = new Set(this.held);
      const found = new Set();
      this.gone.clear();
      for (let after = null, more = true; more; ) {
        try {
          const response = await fetch(this.urls[Math.floor(Math.random() * this.urls.length)], {
            method: 'POST',
            headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${this.token}` },
            body: JSON.stringify({ query: page, variables: { after } }),
            signal: AbortSignal.timeout(10000),
          });
          const { nodes, pageInfo } = (await response.json()).data.timeline;
          nodes.forEach(({ id }) => found.add(id));
          [after, more] = [pageInfo.endCursor, pageInfo.hasNextPage];
        } catch {
          await pause(100);
        }
      }
      for (const id of this.gone) found.delete(id);
      for (const id of before) if (!found.has(id) && !this.since.has(id)) this.held.delete(id);
      for (const id of found) {
        if (!this.since.has(id)) this.read.add(id);
        this.held.add(id);
      }
    });
  }

  async fidget() {
    for (;;) {
      await pause(1000 + 8000 * Math.random());
      if (restless) this.client.terminate();
    }
  }
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const { urls, tokens, steady } = JSON.parse((await lines.next()).value);
const crowd = tokens.map((token, i) => new Follower(urls, token, i < steady));
await Promise.all(crowd.map((follower) => follower.started));
console.log('{"ready":true}');
restless = true;
for await (const line of lines) {
  if (line === 'calm') restless = false;
  if (line === 'told') console.log(JSON.stringify({ told: crowd.map(({ log }) => log) }));
  if (line === 'report') {
    await Promise.all(crowd.map((follower) => follower.work));
    console.log(JSON.stringify({ clients: crowd.map(({ held, twice, failed, resumed, invalidated, beat, server }) => ({ held: [...held], twice, failed, resumed, invalidated, beat, server })) }));
  }
}
process.exit();
