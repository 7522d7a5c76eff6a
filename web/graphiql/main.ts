import 'graphiql/setup-workers/vite'
import 'graphiql/style.css'
import '@graphiql/plugin-explorer/style.css'
import './style.css'

import { explorerPlugin } from '@graphiql/plugin-explorer'
import { HISTORY_PLUGIN } from '@graphiql/plugin-history'
import { GraphiQL } from 'graphiql'
import { createElement } from 'react'
import { createRoot } from 'react-dom/client'

import { fetcher } from './fetcher'
import { defaultTabs } from './tabs'

createRoot(document.getElementById('graphiql')!).render(
  createElement(
    GraphiQL,
    {
      fetcher,
      defaultTabs,
      // The ready-made tabs need their headers, which hold placeholders instead of tokens.
      shouldPersistHeaders: true,
      defaultEditorToolsVisibility: 'headers',
      plugins: [HISTORY_PLUGIN, explorerPlugin({ showAttribution: false })],
    },
    createElement(GraphiQL.Logo, null, createElement('a', { href: '/', title: 'To the app' }, 'Tideline')),
  ),
)
