import { render } from 'preact'

import { Admin } from './admin'

render(<Admin />, document.getElementById('admin')!)
