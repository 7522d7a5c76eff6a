// Receives the live events of a timeline over the protocol graphql-transport-ws, without a package.

const subscription = `subscription ($after: Cursor) {
  timelineEvents(after: $after, heartbeat: 20) { __typename
    ... on TimelinePostAdded { position edge { score node { id text createdAt author { id handle name } } } }
    ... on TimelinePostRemoved { position postId }
    ... on TimelineInvalidated { position }
    ... on TimelineHeartbeat { position } } }`;

// The server sends a heartbeat every 20 seconds. After two missed ones the connection counts as lost.
const silence = 45_000;

// listen calls event(e) for each event after the position, in order, and
// status("live" | "reconnecting") when the connection changes. It reconnects by itself and
// resumes after the last event. token(anew) resolves to a token, a new one if anew is true,
// or to null to stop listening. listen returns a function that stops it.
export function listen({ url, position, token, event, status }) {
  let socket, timer, turn = 0, failures = 0, ended = false, refused = false;

  const patience = () => {
    clearTimeout(timer);
    timer = setTimeout(() => again(), silence);
  };

  // again drops the connection and connects again after a delay. The delay grows with the
  // number of failures and is partly random, so that clients do not all return at once.
  const again = (least = 0) => {
    socket?.close();
    socket = undefined;
    clearTimeout(timer);
    if (ended) return;
    status('reconnecting');
    timer = setTimeout(connect, least + Math.min(15_000, 300 * 2 ** failures++) * (0.5 + Math.random() / 2));
  };

  const connect = async () => {
    const now = ++turn;
    let bearer;
    try {
      bearer = await token(refused);
    } catch {
      bearer = undefined;
    }
    if (ended || bearer === null || now !== turn) return;
    if (!bearer) return again();
    refused = false;
    const mine = (socket = new WebSocket(url, 'graphql-transport-ws'));
    const send = (message) => mine.send(JSON.stringify(message));
    patience();
    mine.onopen = () => send({ type: 'connection_init', payload: { Authorization: `Bearer ${bearer}` } });
    mine.onclose = ({ code }) => {
      if (mine !== socket) return;
      refused = code === 4403; // the token has expired
      again();
    };
    mine.onmessage = ({ data }) => {
      if (mine !== socket) return;
      patience();
      const { type, payload } = JSON.parse(data);
      switch (type) {
        case 'connection_ack':
          send({ id: '1', type: 'subscribe', payload: { query: subscription, variables: { after: position } } });
          status('live');
          return;
        case 'ping':
          send({ type: 'pong' });
          return;
        case 'next':
          if (!payload.data) return again();
          failures = 0;
          position = payload.data.timelineEvents.position;
          event(payload.data.timelineEvents);
          return;
        case 'error':
        case 'complete':
          again(1000);
      }
    };
  };

  // Connect at once when the network is back.
  const awake = () => {
    if (socket || ended) return;
    failures = 0;
    clearTimeout(timer);
    connect();
  };
  addEventListener('online', awake);
  connect();
  return () => {
    ended = true;
    removeEventListener('online', awake);
    clearTimeout(timer);
    socket?.close();
  };
}
