// A server in the same process: graphql-ws on a real socket. Each test decides what it sends.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after } from 'node:test'
import { WebSocketServer, WebSocket as Socket } from 'ws'

import type { ConversationEvent, Edge, TimelineEvent } from '../src/index.js'

export type Subscription = { socket: Socket; id: string; after: string | null; variables: any; token: string }

/** A server whose timeline and answers are set by the test. */
export class Server {
  timeline: Edge[] = []
  position = 'start'
  tokens = new Set(['good'])
  subscriptions: Subscription[] = []
  /** Functions that compute an answer, by the name of the operation, in place of the usual one. */
  answers = new Map<string, (variables: any) => unknown>()
  asked: string[] = []
  url = ''
  #http = createServer((request, response) => {
    let body = ''
    request.on('data', (part) => (body += part))
    request.on('end', () => {
      const { query, variables } = JSON.parse(body)
      const token = request.headers.authorization?.replace('Bearer ', '')
      response.end(JSON.stringify(this.#answer(token, query, variables)))
    })
  })
  #sockets = new WebSocketServer({ server: this.#http, handleProtocols: () => 'graphql-transport-ws' })
  #waiting: (() => void)[] = []

  constructor() {
    this.#sockets.on('connection', (socket) => {
      let token = ''
      socket.on('message', (data) => {
        const message = JSON.parse(String(data))
        if (message.type === 'connection_init') {
          token = message.payload.Authorization?.replace('Bearer ', '') ?? ''
          if (!this.tokens.has(token)) socket.close(4403, 'Forbidden')
          else socket.send('{"type":"connection_ack"}')
        }
        if (message.type === 'subscribe') {
          const { variables } = message.payload
          this.subscriptions.push({ socket, id: message.id, after: variables.after, variables, token })
          this.#waiting.splice(0).forEach((go) => go())
        }
      })
    })
  }

  #answer(token: string | undefined, query: string, variables: any) {
    const name = /(?:query|mutation) (\w+)/.exec(query)![1]!
    this.asked.push(name)
    if (!this.tokens.has(token ?? '')) return { errors: [{ message: 'who?', extensions: { code: 'UNAUTHENTICATED' } }] }
    const own = this.answers.get(name)?.(variables)
    if (own) return own
    if (name === 'Viewer') return { data: { viewer: { id: 'me' } } }
    if (name === 'MarkRead') return { data: { markTimelineRead: { unreadCount: 0 } } }
    const { first, after, last, before } = variables
    const rest = this.timeline.filter((e) => (!after || e.score < +after.slice(1)) && (!before || e.score > +before.slice(1)))
    const edges = last ? rest.slice(-last) : rest.slice(0, first)
    return {
      data: {
        timeline: { unreadCount: 1, position: this.position, edges, pageInfo: { hasNextPage: rest.length > edges.length, endCursor: edges.at(-1)?.cursor ?? null } },
      },
    }
  }

  async listen() {
    await new Promise<void>((done) => this.#http.listen(0, '127.0.0.1', done))
    this.url = `http://127.0.0.1:${(this.#http.address() as AddressInfo).port}/graphql`
    after(() => {
      this.#sockets.clients.forEach((socket) => socket.terminate())
      this.#http.close()
    })
    return this
  }

  /** Waits for the nth subscription, counted from the start of the server. */
  async subscription(n: number): Promise<Subscription> {
    while (this.subscriptions.length < n) await new Promise<void>((go) => this.#waiting.push(go))
    return this.subscriptions[n - 1]!
  }

  tell({ socket, id }: Subscription, event: TimelineEvent | ConversationEvent) {
    const field = event.__typename.startsWith('Timeline') ? 'timelineEvents' : 'conversationEvents'
    socket.send(JSON.stringify({ type: 'next', id, payload: { data: { [field]: event } } }))
  }
}

/** Resolves when the store's state satisfies the condition. */
export function until<S>(store: { subscribe: (watcher: () => void) => () => void; getSnapshot: () => S }, found: (s: S) => boolean): Promise<S> {
  return new Promise((done) => {
    const look = () => {
      if (!found(store.getSnapshot())) return
      stop()
      done(store.getSnapshot())
    }
    const stop = store.subscribe(look)
    look()
  })
}
