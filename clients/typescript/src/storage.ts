// Where a timeline is kept while the program does not run.
import type { Post, Saved } from './core.js'
import type { DefaultPost } from './server.js'

/** Keeps what is held. A storage that fails costs nothing but a read of the first page. */
export type Storage<P extends Post = DefaultPost> = {
  load: () => Promise<Saved<P> | null | undefined>
  save: (saved: Saved<P>) => Promise<void>
}

/** Keeps it as long as the page lives: for a store that is stopped and made again. */
export function memoryStorage<P extends Post = DefaultPost>(): Storage<P> {
  let kept: Saved<P> | undefined
  return {
    load: async () => kept,
    save: async (saved) => {
      kept = saved
    },
  }
}

/** Keeps it in the browser; give each user a name of their own, and delete it when they sign out ({@link forget}). */
export function indexedDBStorage<P extends Post = DefaultPost>(name: string): Storage<P> {
  return {
    load: () => inDatabase((store) => store.get(name)),
    save: (saved) => inDatabase((store) => store.put(saved, name)),
  }
}

/** Deletes what {@link indexedDBStorage} kept under the name. */
export const forget = (name: string): Promise<void> => inDatabase((store) => store.delete(name))

const table = 'timelines'

function inDatabase<T>(what: (store: IDBObjectStore) => IDBRequest): Promise<T> {
  return new Promise((done, failed) => {
    const opening = indexedDB.open('tideline', 1)
    opening.onupgradeneeded = () => opening.result.createObjectStore(table)
    opening.onerror = () => failed(opening.error)
    opening.onsuccess = () => {
      const database = opening.result
      const transaction = database.transaction(table, 'readwrite')
      const asked = what(transaction.objectStore(table))
      transaction.oncomplete = () => {
        database.close()
        done(asked.result as T)
      }
      transaction.onabort = () => {
        database.close()
        failed(transaction.error)
      }
    }
  })
}
