// The timeline of a Tideline user: read, followed, kept.
export { readLine } from './core.js'
export type { Edge, Held, Order, Page, Pending, Post, Saved, TimelineEvent } from './core.js'
export { Refusal } from './server.js'
export type { DefaultPost, Request, TokenSource } from './server.js'
export { forget, indexedDBStorage, memoryStorage } from './storage.js'
export type { Storage } from './storage.js'
export { TimelineStore } from './store.js'
export type { Options, Snapshot, Status } from './store.js'
