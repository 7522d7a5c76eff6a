// Runs the audit of graphql-http against a server: node audit.mjs URL.
// Every audit that is not "ok" is a line of JSON; the last line counts them all.
import { auditServer } from 'graphql-http';

const results = await auditServer({ url: process.argv[2] });
for (const { id, name, status, reason } of results) {
  if (status !== 'ok') console.log(JSON.stringify({ id, name, status, reason }));
}
console.log(JSON.stringify({ total: results.length, ok: results.filter((r) => r.status === 'ok').length }));
