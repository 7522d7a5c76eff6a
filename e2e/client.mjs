// Subscribes to a timeline like an application, and prints one JSON object per line:
//
//   {"event":"connected"}                       the server has accepted the client
//   {"event":"next","data":{…},"errors":[…]}    a result of the subscription
//   {"event":"closed","code":1012,"reason":""}  the connection has ended
//   {"event":"error","error":"…"}               the subscription failed
//   {"event":"complete"}                        the server has ended the subscription
//
// usage: node client.mjs URL TOKEN [POSITION]
//
// The subscription starts after POSITION, if given. The npm package graphql-ws reconnects
// as shouldRetry allows. The process ends when its standard input ends, so it does not
// outlive its parent.
import { createClient } from 'graphql-ws';
import WebSocket from 'ws';

const [url, token, after] = process.argv.slice(2);
const request = {
  query: `subscription ($after: Cursor) {
    timelineEvents(after: $after) {
      __typename
      ... on TimelinePostAdded { unreadCount edge { cursor node { id text author { handle } } } }
      ... on TimelinePostRemoved { postId }
      ... on TimelineInvalidated { reason }
    }
  }`,
  variables: { after },
};
const connectionParams = { Authorization: `Bearer ${token}` };
const print = (event, fields) => console.log(JSON.stringify({ event, ...fields }));
const failed = (error) => print('error', { error: error.message ?? JSON.stringify(error) });
const closed = ({ code, reason }) => print('closed', { code, reason });
const results = {
  next: ({ data, errors }) => print('next', { data, errors }),
  error: failed,
  complete: () => print('complete'),
};

const client = createClient({
  url,
  connectionParams,
  webSocketImpl: WebSocket,
  retryAttempts: 1000,
  // If a connection is refused, a browser emits a close event, and graphql-ws retries by
  // default. The npm package ws emits an error without a code instead.
  shouldRetry: (reason) => !('code' in reason) || reason.code < 4400,
  retryWait: () => new Promise((resolve) => setTimeout(resolve, 100)),
  on: { connected: () => print('connected'), closed },
});

process.stdin.resume().on('end', () => process.exit());
client.subscribe(request, results);
