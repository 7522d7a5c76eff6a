/**
 * @generated SignedSource<<969796bac180645aeeda402ec8a7449b>>
 * @lightSyntaxTransform
 */

/* tslint:disable */
/* eslint-disable */
// @ts-nocheck

import { ConcreteRequest } from 'relay-runtime';
export type UpdatePostInput = {
  postId: string;
  text?: string | null | undefined;
};
export type relayDocumentsUpdatePostMutation$variables = {
  input: UpdatePostInput;
};
export type relayDocumentsUpdatePostMutation$data = {
  readonly updatePost: {
    readonly post: {
      readonly id: string;
      readonly text: string;
    };
  };
};
export type relayDocumentsUpdatePostMutation = {
  response: relayDocumentsUpdatePostMutation$data;
  variables: relayDocumentsUpdatePostMutation$variables;
};

const node: ConcreteRequest = (function(){
var v0 = [
  {
    "defaultValue": null,
    "kind": "LocalArgument",
    "name": "input"
  }
],
v1 = [
  {
    "alias": null,
    "args": [
      {
        "kind": "Variable",
        "name": "input",
        "variableName": "input"
      }
    ],
    "concreteType": "UpdatePostPayload",
    "kind": "LinkedField",
    "name": "updatePost",
    "plural": false,
    "selections": [
      {
        "alias": null,
        "args": null,
        "concreteType": "Post",
        "kind": "LinkedField",
        "name": "post",
        "plural": false,
        "selections": [
          {
            "alias": null,
            "args": null,
            "kind": "ScalarField",
            "name": "id",
            "storageKey": null
          },
          {
            "alias": null,
            "args": null,
            "kind": "ScalarField",
            "name": "text",
            "storageKey": null
          }
        ],
        "storageKey": null
      }
    ],
    "storageKey": null
  }
];
return {
  "fragment": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Fragment",
    "metadata": null,
    "name": "relayDocumentsUpdatePostMutation",
    "selections": (v1/*:: as any*/),
    "type": "Mutation",
    "abstractKey": null
  },
  "kind": "Request",
  "operation": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Operation",
    "name": "relayDocumentsUpdatePostMutation",
    "selections": (v1/*:: as any*/)
  },
  "params": {
    "cacheID": "6e509e275fe74cc69364d76f3a02fee6",
    "id": null,
    "metadata": {},
    "name": "relayDocumentsUpdatePostMutation",
    "operationKind": "mutation",
    "text": "mutation relayDocumentsUpdatePostMutation(\n  $input: UpdatePostInput!\n) {\n  updatePost(input: $input) {\n    post {\n      id\n      text\n    }\n  }\n}\n"
  }
};
})();

(node as any).hash = "0d9f24f82e9380458b9e355b42a4c569";

export default node;
