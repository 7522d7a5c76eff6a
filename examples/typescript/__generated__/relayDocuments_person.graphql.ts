/**
 * @generated SignedSource<<ab1bfbc8a483636b4e994d4ff2c4bd6a>>
 * @lightSyntaxTransform
 */

/* tslint:disable */
/* eslint-disable */
// @ts-nocheck

import { ReaderFragment } from 'relay-runtime';
import { FragmentRefs } from "relay-runtime";
export type relayDocuments_person$data = {
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
  readonly " $fragmentType": "relayDocuments_person";
};
export type relayDocuments_person$key = {
  readonly " $data"?: relayDocuments_person$data;
  readonly " $fragmentSpreads": FragmentRefs<"relayDocuments_person">;
};

const node: ReaderFragment = (function(){
var v0 = {
  "alias": null,
  "args": null,
  "kind": "ScalarField",
  "name": "__typename",
  "storageKey": null
},
v1 = {
  "alias": null,
  "args": null,
  "kind": "ScalarField",
  "name": "id",
  "storageKey": null
};
return {
  "argumentDefinitions": [],
  "kind": "Fragment",
  "metadata": null,
  "name": "relayDocuments_person",
  "selections": [
    (v0/*:: as any*/),
    (v1/*:: as any*/),
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
        (v0/*:: as any*/),
        (v1/*:: as any*/),
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
  "type": "User",
  "abstractKey": null
};
})();

(node as any).hash = "d76af2487a85cf94e69dcd0c098d7208";

export default node;
