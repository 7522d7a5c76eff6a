// Follows the timelines of many users with the TypeScript client kit. crowd.mjs does the
// same with graphql-ws alone.
//
// usage: node kit.mjs, with a line of JSON on standard input:
//
//   {"urls":["http://…/graphql"],"tokens":["…"],"viewers":["…"]}
//
// Each request and each connection of a client goes to a random server. Now and then a
// client breaks its connection, reads an older page, refreshes, or stops and restarts from
// its storage. The program prints {"ready":true} when all clients have read a page. It then
// reads commands, one per line:
//
//   calm        stops the clients from doing this
//   report      makes each client read its timeline to the end, and prints the state of all
//               clients as crowd.mjs does; "behind" is true if a client has not read
//               everything, and "failed" lists posts shown whose text begins with "secret"
//   story 3 id  prints the messages of the fourth client about the post, and all messages
//               that the client sent over its socket
//
// The program ends when its standard input ends.
import { createInterface } from 'node:readline';
import WebSocket from 'ws';

import { memoryStorage, TimelineStore } from '../../clients/typescript/build/src/index.js';

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const { urls, tokens, viewers } = JSON.parse((await lines.next()).value);
const any = () => urls[Math.floor(Math.random() * urls.length)];
let restless = false; // whether clients break their connections

class User {
  failed = [];
  twice = [];
  resumed = 0;
  invalidated = 0;
  beat = 0;
  log = [];
  sockets = new Set();

  constructor(token, viewer) {
    const user = this;
    class Socket extends WebSocket {
      constructor(_, ...args) {
        super(any().replace('http', 'ws'), ...args);
        this.on('error', () => {}); // a close event follows
        user.sockets.add(this);
        this.on('close', () => user.sockets.delete(this));
      }

      send(message, ...args) {
        user.note('sends', message);
        super.send(message, ...args);
      }
    }
    this.options = {
      url: urls[0],
      viewer,
      token,
      fields: 'id text author { id }',
      storage: memoryStorage(),
      pageSize: 50,
      most: 5000,
      heartbeat: 1,
      backoff: () => 50 + 200 * Math.random(),
      fetch: async (_, init) => {
        const answer = await (await fetch(any(), init)).text();
        this.note('reads', answer);
        return new Response(answer);
      },
      webSocketImpl: Socket,
      onSessionEnded: () => this.failed.push('the session has ended'),
      onEvent: (event) => {
        this.beat = Date.now();
        if (event.__typename === 'TimelineInvalidated') this.invalidated++;
        this.note('is told', JSON.stringify(event));
      },
    };
    this.begin();
    this.fidget();
  }

  begin() {
    this.store = new TimelineStore(this.options);
    let before = 'connecting';
    this.stopWatching = this.store.subscribe(() => {
      const { status, entries } = this.store.getSnapshot();
      if (status !== before && status === 'live' && before === 'reconnecting') this.resumed++;
      before = status;
      const seen = new Set();
      for (const { node } of entries) {
        if (seen.has(node.id)) this.twice.push(node.id);
        if (node.text.startsWith('secret')) this.failed.push(`was shown ${node.text}`);
        seen.add(node.id);
      }
    });
    this.started = this.store.start();
  }

  note(what, of) {
    this.log.push({ at: new Date().toISOString(), what, of });
  }

  /** Returns the received messages that mention the post, shortened around it, all invalidations, and all sent messages. */
  story(post) {
    return this.log
      .map((entry) => ({ ...entry, place: entry.of.indexOf(post) }))
      .filter(({ what, of, place }) => place >= 0 || what === 'sends' || of.includes('Invalidated'))
      .map(({ at, what, of, place }) => `${at} ${what} ${place < 0 ? of : of.slice(Math.max(0, place - 100), place + 100)}`);
  }

  async fidget() {
    for (;;) {
      await pause(1000 + 8000 * Math.random());
      if (!restless) continue;
      const what = Math.random();
      if (what < 0.5) for (const socket of this.sockets) Math.random() < 0.5 ? socket.terminate() : socket.close();
      else if (what < 0.7) void this.store.more();
      else if (what < 0.8) void this.store.refresh();
      else {
        // The client resumes: events of the pause are delivered after the restart.
        this.store.stop();
        this.stopWatching();
        await pause(2000 * Math.random());
        this.begin();
        this.resumed++;
      }
    }
  }

  async report() {
    const { store } = this;
    // The kit does not retry a page that failed while a server was down, so retry here.
    for (let n = 0; n < 200 && store.getSnapshot().next; n++) {
      await store.more();
      if (store.getSnapshot().error) await pause(20);
    }
    const { entries, stale, next, status } = store.getSnapshot();
    return {
      held: entries.map(({ node }) => node.id),
      texts: entries.map(({ node }) => node.text),
      behind: stale || next !== null || status !== 'live',
      twice: this.twice, failed: this.failed, resumed: this.resumed, invalidated: this.invalidated, beat: this.beat, server: 0,
    };
  }
}

const users = tokens.map((token, i) => new User(token, viewers[i]));
await Promise.all(users.map((user) => user.started));
console.log('{"ready":true}');
restless = true;
for await (const line of lines) {
  if (line === 'calm') restless = false;
  const [, client, post] = /^story (\d+) (.+)$/.exec(line) ?? [];
  if (post) console.log(JSON.stringify({ story: users[client].story(post) }));
  if (line === 'report') console.log(JSON.stringify({ clients: await Promise.all(users.map((user) => user.report())) }));
}
process.exit();
