/**
 * @generated SignedSource<<e564b8a6383495b9554522397ea87c26>>
 * @lightSyntaxTransform
 */

/* tslint:disable */
/* eslint-disable */
// @ts-nocheck

import { ConcreteRequest } from 'relay-runtime';
export type UserInput = {
  userId: string;
};
export type relayDocumentsBlockMutation$variables = {
  input: UserInput;
};
export type relayDocumentsBlockMutation$data = {
  readonly block: {
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
    };
  };
};
export type relayDocumentsBlockMutation = {
  response: relayDocumentsBlockMutation$data;
  variables: relayDocumentsBlockMutation$variables;
};

const node: ConcreteRequest = (function(){
var v0 = [
  {
    "defaultValue": null,
    "kind": "LocalArgument",
    "name": "input"
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
        "name": "input",
        "variableName": "input"
      }
    ],
    "concreteType": "RelationshipPayload",
    "kind": "LinkedField",
    "name": "block",
    "plural": false,
    "selections": [
      {
        "alias": null,
        "args": null,
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
    ],
    "storageKey": null
  }
];
return {
  "fragment": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Fragment",
    "metadata": null,
    "name": "relayDocumentsBlockMutation",
    "selections": (v3/*:: as any*/),
    "type": "Mutation",
    "abstractKey": null
  },
  "kind": "Request",
  "operation": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Operation",
    "name": "relayDocumentsBlockMutation",
    "selections": (v3/*:: as any*/)
  },
  "params": {
    "cacheID": "6ef6747c819ac2773e665c43af144add",
    "id": null,
    "metadata": {},
    "name": "relayDocumentsBlockMutation",
    "operationKind": "mutation",
    "text": "mutation relayDocumentsBlockMutation(\n  $input: UserInput!\n) {\n  block(input: $input) {\n    user {\n      __typename\n      id\n      handle\n      relationship {\n        __typename\n        id\n        following\n        muting\n        blocking\n      }\n    }\n  }\n}\n"
  }
};
})();

(node as any).hash = "aeeb8d6f76d30baa657a637327ca3216";

export default node;
