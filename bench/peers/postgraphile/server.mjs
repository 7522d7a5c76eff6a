// PostGraphile on Tideline's tables, as for production: one process for each processor, as
// many connections to PostgreSQL in all as the floor has, and nothing for developers.
import cluster from "node:cluster"
import { readFileSync } from "node:fs"
import { createServer } from "node:http"
import { availableParallelism } from "node:os"
import pg from "pg"

const connectionString = process.env.PEER_DATABASE
const workers = availableParallelism()
const connections = 20

if (cluster.isPrimary) await lead()
else await serve()

// lead adds what the page needs to the database, and announces the server when all of its
// workers listen.
async function lead() {
  const client = new pg.Client({ connectionString })
  await client.connect()
  await client.query(readFileSync(new URL("home.sql", import.meta.url), "utf8"))
  await client.end()
  const stop = code => {
    for (const worker of Object.values(cluster.workers)) worker.process.kill("SIGKILL")
    process.exit(code)
  }
  process.on("SIGTERM", () => stop(0))
  cluster.on("exit", () => stop(1)) // what is measured is all of them, or nothing
  let listening = 0
  cluster.on("listening", (_, { port }) => {
    if (++listening === workers) console.log(`API http://127.0.0.1:${port}/`)
  })
  for (let i = 0; i < workers; i++) cluster.fork()
}

async function serve() {
  process.on("disconnect", () => process.exit()) // the leader has ended
  const { postgraphile } = await import("postgraphile")
  const { grafserv } = await import("postgraphile/grafserv/node")
  const { makePgService } = await import("postgraphile/adaptors/pg")
  const { PostGraphileAmberPreset } = await import("postgraphile/presets/amber")
  const service = postgraphile({
    extends: [PostGraphileAmberPreset],
    pgServices: [
      makePgService({
        connectionString,
        schemas: ["public", "home"],
        poolConfig: { max: Math.ceil(connections / workers) },
      }),
    ],
    // Documents, their plans and prepared statements are cached without being asked for.
    grafserv: { graphiql: false, watch: false, websockets: false },
    grafast: { explain: false },
  })
  await service.getSchema() // the first request need not wait for it
  const server = createServer()
  await service.createServ(grafserv).addTo(server)
  server.listen(0, "127.0.0.1")
}
