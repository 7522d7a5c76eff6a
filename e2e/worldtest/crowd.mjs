// Runs one client per user. Each client follows its timeline, loses its connection now
// and then, and tracks the posts it holds: the posts of its last read, changed by the
// events since. A client reads again when its timeline is invalidated.
//
// usage: node crowd.mjs, with a line of JSON on standard input:
//
//   {"urls":["http://…/graphql"],"tokens":["…"],"steady":0}
//
// The first "steady" clients never break their connections and always reconnect to the
// same server. The program prints {"ready":true} when all clients are connected. It then
// reads commands, one per line. "calm" stops the other clients from breaking their
// connections. "report" prints the state of each client. "told" prints the events that
// each client has received, except heartbeats:
//
//   {"clients":[{"held":["id"],"twice":["id"],"resumed":3,"invalidated":1,"failed":[],"beat":1700000000000,"server":0}]}
//   {"told":[[{"at":1700000000000,"kind":"added","post":"id"}]]}
//
// The program ends when its standard input ends.
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
    // Closing a socket that is still opening emits an error here. Browsers report none.
    this.on('error', () => {});
  }

  // graphql-ws keeps listening to a socket that it has terminated, and the next socket
  // uses the same operation ids. Without this, a late message of the old socket would count
  // as a message of the new one. A connection that really breaks delivers nothing more.
  close(...args) {
    this.onmessage = null;
    if (args[0] === 4499 && Math.random() < 0.5) this.terminate();
    else super.close(...args);
  }
}

class Follower {
  held = new Set();
  // Posts that may be added again although the client holds them: posts from a page, whose
  // event may still arrive, and posts held when the timeline was invalidated. A page does not
  // add the posts in since.
  read = new Set();
  // Posts added by events since the last invalidation.
  since = new Set();
  // Posts removed while pages were being read. The pages must not bring them back.
  gone = new Set();
  twice = [];
  failed = [];
  resumed = 0;
  invalidated = 0;
  position = null;
  beat = 0; // time of the last event, heartbeats included
  log = [];
  work = Promise.resolve();

  constructor(urls, token, steady) {
    this.urls = urls;
    this.token = token;
    this.server = Math.floor(Math.random() * urls.length); // index of the current server
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

  // Reads all pages. Events that arrive meanwhile are newer than the pages and take precedence.
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
