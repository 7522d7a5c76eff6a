/**
 * @generated SignedSource<<3d46a9090ace433babbf8983ce8e9354>>
 * @lightSyntaxTransform
 */

/* tslint:disable */
/* eslint-disable */
// @ts-nocheck

import { ConcreteRequest } from 'relay-runtime';
export type UserInput = {
  userId: string;
};
export type relayDocumentsFollowMutation$variables = {
  input: UserInput;
};
export type relayDocumentsFollowMutation$data = {
  readonly follow: {
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
export type relayDocumentsFollowMutation = {
  response: relayDocumentsFollowMutation$data;
  variables: relayDocumentsFollowMutation$variables;
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
    "name": "follow",
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
    "name": "relayDocumentsFollowMutation",
    "selections": (v3/*:: as any*/),
    "type": "Mutation",
    "abstractKey": null
  },
  "kind": "Request",
  "operation": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Operation",
    "name": "relayDocumentsFollowMutation",
    "selections": (v3/*:: as any*/)
  },
  "params": {
    "cacheID": "5a555beb5ee3ab8fcc55d70272f84c26",
    "id": null,
    "metadata": {},
    "name": "relayDocumentsFollowMutation",
    "operationKind": "mutation",
    "text": "mutation relayDocumentsFollowMutation(\n  $input: UserInput!\n) {\n  follow(input: $input) {\n    user {\n      __typename\n      id\n      handle\n      relationship {\n        __typename\n        id\n        following\n        muting\n        blocking\n      }\n    }\n  }\n}\n"
  }
};
})();

(node as any).hash = "8d5f963ea08e708f67f7944a881e1d2c";

export default node;
