/**
 * @generated SignedSource<<fb0ddc29d725d97737743cb4b352a3a7>>
 * @lightSyntaxTransform
 */

/* tslint:disable */
/* eslint-disable */
// @ts-nocheck

import { ConcreteRequest } from 'relay-runtime';
export type UserInput = {
  userId: string;
};
export type relayDocumentsUnmuteMutation$variables = {
  input: UserInput;
};
export type relayDocumentsUnmuteMutation$data = {
  readonly unmute: {
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
export type relayDocumentsUnmuteMutation = {
  response: relayDocumentsUnmuteMutation$data;
  variables: relayDocumentsUnmuteMutation$variables;
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
    "name": "unmute",
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
    "name": "relayDocumentsUnmuteMutation",
    "selections": (v3/*:: as any*/),
    "type": "Mutation",
    "abstractKey": null
  },
  "kind": "Request",
  "operation": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Operation",
    "name": "relayDocumentsUnmuteMutation",
    "selections": (v3/*:: as any*/)
  },
  "params": {
    "cacheID": "c844308c7640bfbdf181977ceef52778",
    "id": null,
    "metadata": {},
    "name": "relayDocumentsUnmuteMutation",
    "operationKind": "mutation",
    "text": "mutation relayDocumentsUnmuteMutation(\n  $input: UserInput!\n) {\n  unmute(input: $input) {\n    user {\n      __typename\n      id\n      handle\n      relationship {\n        __typename\n        id\n        following\n        muting\n        blocking\n      }\n    }\n  }\n}\n"
  }
};
})();

(node as any).hash = "be0abfd02e5968e3c22640d2a6673153";

export default node;
