/**
 * @generated SignedSource<<df1d239b6ff368825c0ea754fdbf8de1>>
 * @lightSyntaxTransform
 */

/* tslint:disable */
/* eslint-disable */
// @ts-nocheck

import { ConcreteRequest } from 'relay-runtime';
export type UserInput = {
  userId: string;
};
export type relayDocumentsUnfollowMutation$variables = {
  input: UserInput;
};
export type relayDocumentsUnfollowMutation$data = {
  readonly unfollow: {
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
export type relayDocumentsUnfollowMutation = {
  response: relayDocumentsUnfollowMutation$data;
  variables: relayDocumentsUnfollowMutation$variables;
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
    "name": "unfollow",
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
    "name": "relayDocumentsUnfollowMutation",
    "selections": (v3/*:: as any*/),
    "type": "Mutation",
    "abstractKey": null
  },
  "kind": "Request",
  "operation": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Operation",
    "name": "relayDocumentsUnfollowMutation",
    "selections": (v3/*:: as any*/)
  },
  "params": {
    "cacheID": "9f49bad53a83e6fd32bfbc99def865ad",
    "id": null,
    "metadata": {},
    "name": "relayDocumentsUnfollowMutation",
    "operationKind": "mutation",
    "text": "mutation relayDocumentsUnfollowMutation(\n  $input: UserInput!\n) {\n  unfollow(input: $input) {\n    user {\n      __typename\n      id\n      handle\n      relationship {\n        __typename\n        id\n        following\n        muting\n        blocking\n      }\n    }\n  }\n}\n"
  }
};
})();

(node as any).hash = "345a88f4d9c2280cbb72d6080d69ff53";

export default node;
