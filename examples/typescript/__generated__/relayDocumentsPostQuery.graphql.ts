/**
 * @generated SignedSource<<50d7d0e44893e4a6bff0605fd1574ec2>>
 * @lightSyntaxTransform
 */

/* tslint:disable */
/* eslint-disable */
// @ts-nocheck

import { ConcreteRequest } from 'relay-runtime';
export type relayDocumentsPostQuery$variables = {
  id: string;
};
export type relayDocumentsPostQuery$data = {
  readonly node: {
    readonly __typename: string;
    readonly author?: {
      readonly __typename: "User";
      readonly handle: string;
      readonly id: string;
      readonly relationship: {
        readonly __typename: "Relationship";
        readonly blocking: boolean;
        readonly following: boolean;
        readonly id: string;
        readonly muting: boolean;
      } | null | undefined;
    };
    readonly id: string;
    readonly text?: string;
  } | null | undefined;
};
export type relayDocumentsPostQuery = {
  response: relayDocumentsPostQuery$data;
  variables: relayDocumentsPostQuery$variables;
};

const node: ConcreteRequest = (function(){
var v0 = [
  {
    "defaultValue": null,
    "kind": "LocalArgument",
    "name": "id"
  }
],
v1 = {
  "alias": null,
  "args": null,
  "kind": "ScalarField",
  "name": "__typename",
  "storageKey": null
},
v2 = {
  "alias": null,
  "args": null,
  "kind": "ScalarField",
  "name": "id",
  "storageKey": null
},
v3 = [
  {
    "alias": null,
    "args": [
      {
        "kind": "Variable",
        "name": "id",
        "variableName": "id"
      }
    ],
    "concreteType": null,
    "kind": "LinkedField",
    "name": "node",
    "plural": false,
    "selections": [
      (v1/*:: as any*/),
      (v2/*:: as any*/),
      {
        "kind": "InlineFragment",
        "selections": [
          {
            "alias": null,
            "args": null,
            "kind": "ScalarField",
            "name": "text",
            "storageKey": null
          },
          {
            "alias": null,
            "args": null,
            "concreteType": "User",
            "kind": "LinkedField",
            "name": "author",
            "plural": false,
            "selections": [
              (v1/*:: as any*/),
              (v2/*:: as any*/),
              {
                "alias": null,
                "args": null,
                "kind": "ScalarField",
                "name": "handle",
                "storageKey": null
              },
              {
                "alias": null,
                "args": null,
                "concreteType": "Relationship",
                "kind": "LinkedField",
                "name": "relationship",
                "plural": false,
                "selections": [
                  (v1/*:: as any*/),
                  (v2/*:: as any*/),
                  {
                    "alias": null,
                    "args": null,
                    "kind": "ScalarField",
                    "name": "following",
                    "storageKey": null
                  },
                  {
                    "alias": null,
                    "args": null,
                    "kind": "ScalarField",
                    "name": "muting",
                    "storageKey": null
                  },
                  {
                    "alias": null,
                    "args": null,
                    "kind": "ScalarField",
                    "name": "blocking",
                    "storageKey": null
                  }
                ],
                "storageKey": null
              }
            ],
            "storageKey": null
          }
        ],
        "type": "Post",
        "abstractKey": null
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
    "name": "relayDocumentsPostQuery",
    "selections": (v3/*:: as any*/),
    "type": "Query",
    "abstractKey": null
  },
  "kind": "Request",
  "operation": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Operation",
    "name": "relayDocumentsPostQuery",
    "selections": (v3/*:: as any*/)
  },
  "params": {
    "cacheID": "9cee21d6baba7b7562cddc841df912cb",
    "id": null,
    "metadata": {},
    "name": "relayDocumentsPostQuery",
    "operationKind": "query",
    "text": "query relayDocumentsPostQuery(\n  $id: ID!\n) {\n  node(id: $id) {\n    __typename\n    id\n    ... on Post {\n      text\n      author {\n        __typename\n        id\n        handle\n        relationship {\n          __typename\n          id\n          following\n          muting\n          blocking\n        }\n      }\n    }\n  }\n}\n"
  }
};
})();

(node as any).hash = "cc9df816e276c780e1000b3aba4fdeea";

export default node;
