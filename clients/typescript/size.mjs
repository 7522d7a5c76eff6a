// Prints how large the kit is, as a page would load it, and fails when that is too much.
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'

const most = 9 * 1024
for (const entry of ['index', 'react', 'preact', 'apollo', 'relay', 'urql']) {
  const { outputFiles } = await build({
    entryPoints: [new URL(`build/src/${entry}.js`, import.meta.url).pathname],
    bundle: true, minify: true, format: 'esm', target: 'es2022', write: false,
    external: ['graphql-ws', 'react', 'preact/compat'],
  })
  const size = gzipSync(outputFiles[0].contents, { level: 9 }).length
  console.log(`@tideline/client/${entry}: ${size} bytes gzipped`)
  if (size > most) {
    console.error(`That is more than ${most}.`)
    process.exit(1)
  }
}
