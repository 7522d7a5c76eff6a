/**
 * @generated SignedSource<<8dc97fa6786cee2bc186440bb92fd4f6>>
 * @lightSyntaxTransform
 */

/* tslint:disable */
/* eslint-disable */
// @ts-nocheck

import { ConcreteRequest } from 'relay-runtime';
export type relayDocumentsUserQuery$variables = {
  handle: string;
};
export type relayDocumentsUserQuery$data = {
  readonly user: {
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
  } | null | undefined;
};
export type relayDocumentsUserQuery = {
  response: relayDocumentsUserQuery$data;
  variables: relayDocumentsUserQuery$variables;
};

const node: ConcreteRequest = (function(){
var v0 = [
  {
    "defaultValue": null,
    "kind": "LocalArgument",
    "name": "handle"
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
        "name": "handle",
        "variableName": "handle"
      }
    ],
    "concreteType": "User",
    "kind": "LinkedField",
    "name": "user",
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
];
return {
  "fragment": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Fragment",
    "metadata": null,
    "name": "relayDocumentsUserQuery",
    "selections": (v3/*:: as any*/),
    "type": "Query",
    "abstractKey": null
  },
  "kind": "Request",
  "operation": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Operation",
    "name": "relayDocumentsUserQuery",
    "selections": (v3/*:: as any*/)
  },
  "params": {
    "cacheID": "eb867287d3ded34dd4ed0ea41d116552",
    "id": null,
    "metadata": {},
    "name": "relayDocumentsUserQuery",
    "operationKind": "query",
    "text": "query relayDocumentsUserQuery(\n  $handle: String!\n) {\n  user(handle: $handle) {\n    __typename\n    id\n    handle\n    relationship {\n      __typename\n      id\n      following\n      muting\n      blocking\n    }\n  }\n}\n"
  }
};
})();

(node as any).hash = "53649df91619cd11b23117a8c720d6bf";

export default node;
