// Follows a timeline as a user's program would and prints what happens, one JSON
// object per line:
//
//   {"event":"connected"}                       the server has accepted the client
//   {"event":"next","data":{…},"errors":[…]}    a result of the subscription
//   {"event":"closed","code":1012,"reason":""}  the connection has ended
//   {"event":"error","error":"…"}               the subscription could not be had
//   {"event":"complete"}                        the server has ended it
//
// usage: node client.mjs URL TOKEN [POSITION]
//
// The npm package graphql-ws reconnects by itself as far as it thinks it right. The subscription resumes after POSITION,
// if any. The process ends when its standard input does, so that it never outlives
// who started it.
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
  // A browser tells of a refused connection by a close event, on which the
  // package retries by default; ws does it by an error.
  shouldRetry: (reason) => !('code' in reason) || reason.code < 4400,
  retryWait: () => new Promise((resolve) => setTimeout(resolve, 100)),
  on: { connected: () => print('connected'), closed },
});

process.stdin.resume().on('end', () => process.exit());
client.subscribe(request, results);
