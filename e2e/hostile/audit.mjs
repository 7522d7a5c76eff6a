// Runs the graphql-http audit against a server: node audit.mjs URL.
// Prints each check that is not "ok" as a line of JSON. The last line counts all checks.
import { auditServer } from 'graphql-http';

const results = await auditServer({ url: process.argv[2] });
for (const { id, name, status, reason } of results) {
  if (status !== 'ok') console.log(JSON.stringify({ id, name, status, reason }));
}
console.log(JSON.stringify({ total: results.length, ok: results.filter((r) => r.status === 'ok').length }));
