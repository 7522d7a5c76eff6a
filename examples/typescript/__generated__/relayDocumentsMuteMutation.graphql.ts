/**
 * @generated SignedSource<<32a961d1261d6f88ebe5456c45450bdc>>
 * @lightSyntaxTransform
 */

/* tslint:disable */
/* eslint-disable */
// @ts-nocheck

import { ConcreteRequest } from 'relay-runtime';
export type UserInput = {
  userId: string;
};
export type relayDocumentsMuteMutation$variables = {
  input: UserInput;
};
export type relayDocumentsMuteMutation$data = {
  readonly mute: {
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
export type relayDocumentsMuteMutation = {
  response: relayDocumentsMuteMutation$data;
  variables: relayDocumentsMuteMutation$variables;
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
    "name": "mute",
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
    "name": "relayDocumentsMuteMutation",
    "selections": (v3/*:: as any*/),
    "type": "Mutation",
    "abstractKey": null
  },
  "kind": "Request",
  "operation": {
    "argumentDefinitions": (v0/*:: as any*/),
    "kind": "Operation",
    "name": "relayDocumentsMuteMutation",
    "selections": (v3/*:: as any*/)
  },
  "params": {
    "cacheID": "64fcc6179c836a9e77c330ec77b921ad",
    "id": null,
    "metadata": {},
    "name": "relayDocumentsMuteMutation",
    "operationKind": "mutation",
    "text": "mutation relayDocumentsMuteMutation(\n  $input: UserInput!\n) {\n  mute(input: $input) {\n    user {\n      __typename\n      id\n      handle\n      relationship {\n        __typename\n        id\n        following\n        muting\n        blocking\n      }\n    }\n  }\n}\n"
  }
};
})();

(node as any).hash = "1a38f650960c348ac79994e21b40f85a";

export default node;
