// The GraphQL documents of the pages for moderators.
import type { FragmentOf, ResultOf } from 'gql.tada'

import { graphql } from '../documents'

const report = graphql(`
  fragment Report on Report {
    id
    reporter {
      handle
    }
    reportedId
    reported {
      handle
      name
      bio
      avatarUrl
      createdAt
    }
    suspension {
      handle
      name
      reason
      until
    }
    postId
    post {
      text
      visibility
      hiddenByModerators
    }
    text
    reason
    comment
    status
    createdAt
    claimedById
    claimedBy {
      handle
    }
    claimedUntil
    decidedAt
    decidedBy {
      handle
    }
    note
  }
`)

const said = graphql(`
  fragment Said on ReportedPost {
    id
    author {
      handle
    }
    text
    visibility
    hiddenByModerators
    createdAt
    editedAt
  }
`)

export type Report = FragmentOf<typeof report>
export type Said = FragmentOf<typeof said>
export type AuditEntry = ResultOf<typeof AuditLog>['auditLog']['nodes'][number]

export const Reports = graphql(
  `
    query Reports($status: ReportStatus!, $after: Cursor) {
      reports(status: $status, first: 20, after: $after) {
        nodes {
          ...Report
        }
        pageInfo {
          hasNextPage
          endCursor
        }
      }
    }
  `,
  [report],
)

export const ReportedConversation = graphql(
  `
    query ReportedConversation($id: ID!) {
      report(id: $id) {
        ancestors {
          ...Said
        }
        replies {
          ...Said
        }
      }
    }
  `,
  [said],
)

export const ReportedVersions = graphql(`
  query ReportedVersions($id: ID!, $after: Cursor) {
    report(id: $id) {
      versions(first: 20, after: $after) {
        nodes {
          id
          text
          createdAt
        }
        pageInfo {
          hasNextPage
          endCursor
        }
      }
    }
  }
`)

export const ClaimReport = graphql(
  `
    mutation ClaimReport($input: ClaimReportInput!) {
      claimReport(input: $input) {
        report {
          ...Report
        }
      }
    }
  `,
  [report],
)

export const DecideReport = graphql(`
  mutation DecideReport($input: DecideReportInput!) {
    decideReport(input: $input) {
      decided
    }
  }
`)

const suspension = graphql(`
  fragment Suspension on Suspension {
    id: userId
    handle
    name
    reason
    until
  }
`)

export type Suspension = FragmentOf<typeof suspension>

export const SuspensionOf = graphql(
  `
    query SuspensionOf($handle: String!) {
      suspension(handle: $handle) {
        ...Suspension
      }
    }
  `,
  [suspension],
)

export const Suspensions = graphql(
  `
    query Suspensions($after: Cursor) {
      suspensions(first: 20, after: $after) {
        nodes {
          ...Suspension
        }
        pageInfo {
          hasNextPage
          endCursor
        }
      }
    }
  `,
  [suspension],
)

export const HidePost = graphql(`
  mutation HidePost($input: ModeratePostInput!) {
    hidePost(input: $input) {
      changed
    }
  }
`)

export const UnhidePost = graphql(`
  mutation UnhidePost($input: ModeratePostInput!) {
    unhidePost(input: $input) {
      changed
    }
  }
`)

export const SuspendUser = graphql(`
  mutation SuspendUser($input: ModerateUserInput!) {
    suspendUser(input: $input) {
      changed
    }
  }
`)

export const UnsuspendUser = graphql(`
  mutation UnsuspendUser($input: ModerateUserInput!) {
    unsuspendUser(input: $input) {
      changed
    }
  }
`)

export const RoleOf = graphql(`
  query RoleOf($handle: String!) {
    user(handle: $handle) {
      id
      handle
      name
      avatarUrl
      role
    }
  }
`)

export const SetRole = graphql(`
  mutation SetRole($input: SetRoleInput!) {
    setRole(input: $input) {
      role
    }
  }
`)

export const AuditLog = graphql(`
  query AuditLog($after: Cursor) {
    auditLog(first: 20, after: $after) {
      nodes {
        id
        actorId
        actorHandle
        apiKeyId
        action
        subjectId
        subjectHandle
        note
        roleBefore
        roleAfter
        decision
        reason
        until
        imported
        jobCount
        jobIds
        processId
        createdAt
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`)
