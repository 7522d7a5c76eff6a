// Stores a timeline between runs of the program.
import type { Post, Saved } from './core.js'
import type { DefaultPost } from './server.js'

/** Stores a timeline. If it fails, the store reads the first page instead. */
export type Storage<P extends Post = DefaultPost> = {
  load: () => Promise<Saved<P> | null | undefined>
  save: (saved: Saved<P>) => Promise<void>
}

/** Stores a timeline in memory, for a store that is created again on the same page. */
export function memoryStorage<P extends Post = DefaultPost>(): Storage<P> {
  let kept: Saved<P> | undefined
  return {
    load: async () => kept,
    save: async (saved) => {
      kept = saved
    },
  }
}

/**
 * Stores a timeline in the browser. Use a different name for each user, and call {@link forget} when the user signs out. Of
 * two tabs with the same name, the one that stores last replaces what the other stored, also its unconfirmed posts.
 */
export function indexedDBStorage<P extends Post = DefaultPost>(name: string): Storage<P> {
  return {
    load: () => inDatabase((store) => store.get(name)),
    save: (saved) => inDatabase((store) => store.put(saved, name)),
  }
}

/** Deletes the timeline that {@link indexedDBStorage} stored under the name. */
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
