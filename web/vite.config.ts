// The mode chooses which of three sites to build: the app (served at /), GraphiQL (served at /graphiql), or the admin
// page (served at the root of a separate address).
import { print } from '@0no-co/graphql.web'
import { gzipSync } from 'fflate'
import { defineConfig, runnerImport, type Plugin } from 'vite'

export default defineConfig(({ mode }) => ({
  root: mode,
  base: mode === 'graphiql' ? '/graphiql/' : '/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  worker: { format: 'es' },
  // The client kit is compiled from its sources, with the dependencies of the app.
  resolve: {
    alias: { '@tideline/client': new URL('../clients/typescript/src/index.ts', import.meta.url).pathname },
    dedupe: ['graphql-ws'],
  },
  plugins: [mode === 'app' && [trusted(), fixed()], gzip()],
  build: {
    outDir: `../dist/${mode}`,
    emptyOutDir: true,
    // The Content-Security-Policy forbids inline scripts and data: images.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    license: { fileName: 'licenses.md' },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 8192,
    rolldownOptions: {
      onwarn(warning, warn) {
        // React's "use client" directive has no meaning here: all code runs in the browser.
        if (warning.code !== 'MODULE_LEVEL_DIRECTIVE') warn(warning)
      },
    },
  },
}))

// Writes documents.json: every GraphQL document that the app sends, by its hash. A server that executes only trusted
// documents reads this file.
function trusted(): Plugin {
  return {
    name: 'trusted',
    async generateBundle() {
      const load = async (file: string) => (await runnerImport<any>(new URL(file, import.meta.url).pathname)).module
      const [app, moderation, kit] = [await load('app/documents.ts'), await load('app/moderation/documents.ts'), await load('../clients/typescript/src/server.ts')]
      const timeline = kit.documents(app.timelineFields.fields, app.timelineFields.fragments)
      const conversation = kit.conversationDocuments(app.conversationFields.fields, app.conversationFields.fragments)
      const isOperation = ({ kind }: { kind: string }) => kind === 'OperationDefinition'
      const texts: string[] = [
        ...[app, moderation].flatMap(Object.values<any>).filter((document) => document.definitions?.some(isOperation)).map(print),
        timeline.page, timeline.events, timeline.create, timeline.read, timeline.viewer,
        conversation.first, conversation.ancestors, conversation.page, conversation.events, conversation.create,
      ]
      const hash = async (text: string) =>
        [...new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)))].map((byte) => byte.toString(16).padStart(2, '0')).join('')
      const byHash = (await Promise.all(texts.map(async (text) => [await hash(text), text]))).sort()
      this.emitFile({ type: 'asset', fileName: 'documents.json', source: JSON.stringify(Object.fromEntries(byHash), null, 2) })
    },
  }
}

// Adds the files that browsers and other programs expect at a fixed address. The pictures are drawn from icon.svg.
function fixed(): Plugin {
  return {
    name: 'fixed',
    async generateBundle() {
      const folder = new URL('app/files/', import.meta.url).pathname
      for (const fileName of (await this.fs.readdir(folder)).sort()) {
        this.emitFile({ type: 'asset', fileName, source: await this.fs.readFile(folder + fileName) })
      }
    },
  }
}

// Replaces every file by its compressed form, so that the repository and the binary hold nothing twice. fflate is plain
// JavaScript and writes the same bytes on every machine. Node's own zlib does not promise this.
function gzip(): Plugin {
  return {
    name: 'gzip',
    enforce: 'post',
    generateBundle: {
      order: 'post',
      handler(_, bundle) {
        for (const [name, file] of Object.entries(bundle)) {
          const content = file.type === 'chunk' ? file.code : file.source
          const bytes = typeof content === 'string' ? new TextEncoder().encode(content) : content
          delete bundle[name]
          this.emitFile({ type: 'asset', fileName: `${name}.gz`, source: gzipSync(bytes, { level: 9, mtime: 0 }) })
        }
      },
    },
  }
}
