// Every GraphQL document of the app. Their types come from the schema: `npm run schema` writes schema.d.ts, and then
// `npm run check` reports fields and arguments that do not exist.
import { print } from '@0no-co/graphql.web'
import type { Edge } from '@tideline/client'
import { initGraphQLTada, type FragmentOf, type ResultOf } from 'gql.tada'

import type { introspection } from './schema'

export const graphql = initGraphQLTada<{
  introspection: introspection
  disableMasking: true
  scalars: { Cursor: string; Time: string }
}>()

const session = graphql(`
  fragment Session on AuthPayload {
    token
    user {
      id
      handle
      name
      avatarUrl
      defaultVisibility
      role
    }
  }
`)

const person = graphql(`
  fragment Person on User {
    id
    handle
    name
    bio
    avatarUrl
    links
    createdAt
    approvesFollowers
    postCount
    followerCount
    followingCount
    relationship {
      following
      followedBy
      mutual
      blocking
      muting
      requested
    }
  }
`)

const peoplePage = graphql(
  `
    fragment PeoplePage on UserConnection {
      nodes {
        ...Person
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  `,
  [person],
)

const OriginalFields = graphql(`
  fragment Original on Post {
    id
    text
    visibility
    hiddenByModerators
    createdAt
    editedAt
    likeCount
    viewerHasLiked
    replyCount
    repostCount
    quoteCount
    replyAudience
    quoteAudience
    viewerCanReply
    viewerCanQuote
    viewerRepost {
      id
    }
    viewerHasMutedConversation
    mentions {
      start
      user {
        id
        handle
      }
    }
    author {
      id
      handle
      name
      avatarUrl
    }
    replyTo {
      id
      replyCount
      author {
        id
        handle
      }
    }
    quote {
      state
      post {
        id
        text
        createdAt
        author {
          id
          handle
          name
          avatarUrl
        }
      }
    }
  }
`)

/** The fields of a post that the app shows, and the post that it reposts. */
export const PostFields = graphql(
  `
    fragment Post on Post {
      ...Original
      repostOf {
        ...Original
      }
    }
  `,
  [OriginalFields],
)

const postPage = graphql(
  `
    fragment PostPage on PostConnection {
      nodes {
        ...Post
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  `,
  [PostFields],
)

const receipt = graphql(`
  fragment Receipt on PostDelivery {
    pushed
    pulled
    skipped
    lastLagMs
    done
  }
`)

export type Receipt = FragmentOf<typeof receipt>
export type Session = FragmentOf<typeof session>
export type Role = NonNullable<Session['user']['role']>
export type Person = FragmentOf<typeof person>
/** The fields of a post for the client kit: in a timeline, and in a conversation, where no post is a repost. */
export const timelineFields = { fields: '...Post', fragments: print(PostFields) }
export const conversationFields = { fields: '...Original', fragments: print(OriginalFields) }

/** A post that is no repost. */
export type Original = FragmentOf<typeof OriginalFields>
export type Post = FragmentOf<typeof PostFields>
export type Entry = Edge<Post>
export type Visibility = Post['visibility']
export type Audience = Post['replyAudience']
/** A session in the list of the user's sessions. */
export type OpenSession = NonNullable<NonNullable<ResultOf<typeof Sessions>['viewer']>['sessions']>['nodes'][number]
export type HomeReplies = NonNullable<NonNullable<ResultOf<typeof Settings>['viewer']>['homeReplies']>

export const SignUp = graphql(`mutation SignUp($input: SignUpInput!) { signUp(input: $input) { ...Session } }`, [session])
export const LogIn = graphql(`mutation LogIn($input: LogInInput!) { logIn(input: $input) { restored ...Session } }`, [session])

export const LogOut = graphql(`
  mutation LogOut {
    logOut
  }
`)

export const LogOutEverywhere = graphql(`
  mutation LogOutEverywhere {
    logOutEverywhere {
      endedSessions
    }
  }
`)

export const Sessions = graphql(`
  query Sessions($after: Cursor) {
    viewer {
      sessions(first: 20, after: $after) {
        nodes {
          id
          createdAt
          expiresAt
          current
          userAgent
        }
        pageInfo {
          hasNextPage
          endCursor
        }
      }
    }
  }
`)

export const EndSession = graphql(`
  mutation EndSession($input: EndSessionInput!) {
    endSession(input: $input) {
      endedSessionId
    }
  }
`)

export const ChangeHandle = graphql(`mutation ChangeHandle($input: ChangeHandleInput!) { changeHandle(input: $input) { user { ...Person } } }`, [person])

export const ChangePassword = graphql(`
  mutation ChangePassword($input: ChangePasswordInput!) {
    changePassword(input: $input) {
      endedSessions
    }
  }
`)

export const ExportAccount = graphql(`
  mutation ExportAccount($input: ExportAccountInput!) {
    exportAccount(input: $input) {
      path
      expiresAt
    }
  }
`)

export const DeleteAccount = graphql(`
  mutation DeleteAccount($input: DeleteAccountInput!) {
    deleteAccount(input: $input) {
      restorableUntil
    }
  }
`)

export const Viewer = graphql(`
  query Viewer {
    viewer {
      id
    }
  }
`)

export const Limits = graphql(`
  query Limits {
    limits {
      postLength
      pageSize
      rankings
    }
  }
`)

export const Requests = graphql(
  `
    query Requests($after: Cursor) {
      viewer {
        id
        handle
        name
        avatarUrl
        defaultVisibility
        role
        list: followRequests(first: 20, after: $after) {
          ...PeoplePage
        }
      }
    }
  `,
  [peoplePage],
)

export const OpenReports = graphql(`
  query OpenReports {
    reports(first: 20) {
      nodes {
        id
      }
      pageInfo {
        hasNextPage
      }
    }
  }
`)

export const Settings = graphql(`
  query Settings {
    viewer {
      handle
      name
      bio
      avatarUrl
      links
      defaultVisibility
      approvesFollowers
      homeReplies
    }
    limits {
      nameLength
      bioLength
      avatarUrlLength
      avatarHosts
      links
      linkLength
    }
  }
`)

export const Blocked = graphql(
  `
    query Blocked($after: Cursor) {
      viewer {
        list: blocked(first: 20, after: $after) {
          ...PeoplePage
        }
      }
    }
  `,
  [peoplePage],
)

export const Muted = graphql(
  `
    query Muted($after: Cursor) {
      viewer {
        list: muted(first: 20, after: $after) {
          ...PeoplePage
        }
      }
    }
  `,
  [peoplePage],
)

export const SentRequests = graphql(
  `
    query SentRequests($after: Cursor) {
      viewer {
        list: sentRequests(first: 20, after: $after) {
          ...PeoplePage
        }
      }
    }
  `,
  [peoplePage],
)

export const LikedPosts = graphql(
  `
    query LikedPosts($after: Cursor) {
      viewer {
        likedPosts(first: 20, after: $after) {
          ...PostPage
        }
      }
    }
  `,
  [postPage],
)

export const MutedConversations = graphql(
  `
    query MutedConversations($after: Cursor) {
      viewer {
        mutedConversations(first: 20, after: $after) {
          ...PostPage
        }
      }
    }
  `,
  [postPage],
)

export const MutesAuthor = graphql(`
  query MutesAuthor($id: ID!) {
    node(id: $id) {
      ... on User {
        relationship {
          muting
        }
      }
    }
  }
`)

export const MutedWords = graphql(`
  query MutedWords {
    viewer {
      mutedWords
    }
    limits {
      mutedWordLength
    }
  }
`)

export const MuteWord = graphql(`
  mutation MuteWord($input: MuteWordInput!) {
    muteWord(input: $input) {
      word
    }
  }
`)

export const UnmuteWord = graphql(`
  mutation UnmuteWord($input: MuteWordInput!) {
    unmuteWord(input: $input) {
      word
    }
  }
`)

export const UpdateProfile = graphql(`
  mutation UpdateProfile($input: UpdateProfileInput!) {
    updateProfile(input: $input) {
      user {
        id
        handle
        name
        avatarUrl
        defaultVisibility
        role
      }
    }
  }
`)

export const DeletePost = graphql(`
  mutation DeletePost($input: DeletePostInput!) {
    deletePost(input: $input) {
      deletedPostId
    }
  }
`)

export const ReportPost = graphql(`
  mutation ReportPost($input: ReportPostInput!) {
    reportPost(input: $input) {
      reported
    }
  }
`)

export const ReportUser = graphql(`
  mutation ReportUser($input: ReportUserInput!) {
    reportUser(input: $input) {
      reported
    }
  }
`)

export const UpdatePost = graphql(`mutation UpdatePost($input: UpdatePostInput!) { updatePost(input: $input) { post { ...Post } } }`, [PostFields])

export const Versions = graphql(`
  query Versions($id: ID!, $first: Int!, $after: Cursor) {
    post(id: $id) {
      versions(first: $first, after: $after) {
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

export const SetVisibility = graphql(`mutation SetVisibility($input: SetPostVisibilityInput!) { setPostVisibility(input: $input) { post { ...Post } } }`, [PostFields])
export const LikePost = graphql(`mutation LikePost($input: LikePostInput!) { likePost(input: $input) { post { ...Post } } }`, [PostFields])
export const UnlikePost = graphql(`mutation UnlikePost($input: LikePostInput!) { unlikePost(input: $input) { post { ...Post } } }`, [PostFields])
export const Repost = graphql(`mutation Repost($input: RepostInput!) { repost(input: $input) { post { id repostOf { ...Original } } } }`, [OriginalFields])
export const UndoRepost = graphql(`mutation UndoRepost($input: PostInput!) { undoRepost(input: $input) { post { ...Original } } }`, [OriginalFields])
export const WithdrawQuote = graphql(`mutation WithdrawQuote($input: PostInput!) { withdrawQuote(input: $input) { post { ...Original } } }`, [OriginalFields])
export const MuteConversation = graphql(`mutation MuteConversation($input: PostInput!) { muteConversation(input: $input) { post { ...Original } } }`, [OriginalFields])
export const UnmuteConversation = graphql(`mutation UnmuteConversation($input: PostInput!) { unmuteConversation(input: $input) { post { ...Original } } }`, [OriginalFields])
export const SetAudience = graphql(`mutation SetAudience($input: SetAudienceInput!) { setAudience(input: $input) { post { ...Original } } }`, [OriginalFields])

export const Reposts = graphql(
  `
    query Reposts($id: ID!, $after: Cursor) {
      post(id: $id) {
        reposts(first: 20, after: $after) {
          nodes {
            author {
              ...Person
            }
          }
          pageInfo {
            hasNextPage
            endCursor
          }
        }
      }
    }
  `,
  [person],
)

export const Quotes = graphql(
  `
    query Quotes($id: ID!, $after: Cursor) {
      post(id: $id) {
        quotes(first: 20, after: $after) {
          ...PostPage
        }
      }
    }
  `,
  [postPage],
)

export const PostCounts = graphql(`
  subscription PostCounts($ids: [ID!]!) {
    postCounts(ids: $ids) {
      id
      likeCount
      replyCount
      repostCount
      quoteCount
    }
  }
`)

export const UserStates = graphql(
  `
    subscription UserStates($ids: [ID!]!) {
      userStates(ids: $ids) {
        ...Person
      }
    }
  `,
  [person],
)

export const Receipts = graphql(
  `
    query Receipts($ids: [ID!]!) {
      nodes(ids: $ids) {
        id
        ... on Post {
          delivery {
            ...Receipt
          }
        }
      }
    }
  `,
  [receipt],
)

export const Suggested = graphql(
  `
    query Suggested($first: Int!) {
      suggestedUsers(first: $first) {
        ...Person
      }
    }
  `,
  [person],
)

export const People = graphql(
  `
    query People($query: String, $first: Int!, $after: Cursor) {
      users(query: $query, first: $first, after: $after) {
        ...PeoplePage
      }
    }
  `,
  [peoplePage],
)

/** The people that complete a mention. */
export const Mentionable = graphql(`
  query Mentionable($query: String!, $first: Int!) {
    users(query: $query, first: $first) {
      nodes {
        id
        handle
        name
        avatarUrl
      }
    }
  }
`)

export const Profile = graphql(
  `
    query Profile($handle: String!, $after: Cursor) {
      user(handle: $handle) {
        ...Person
        posts(first: 20, after: $after) {
          ...PostPage
        }
      }
    }
  `,
  [person, postPage],
)

/** A page of the timeline by a named ranking, with the fields that the client kit asks for. */
export const Ranked = graphql(
  `
    query Ranked($first: Int, $after: Cursor, $ranking: String) {
      timeline(first: $first, after: $after, order: RANKED, ranking: $ranking) {
        unreadCount
        position
        edges {
          cursor
          score
          node {
            ...Post
          }
        }
        pageInfo {
          hasNextPage
          endCursor
        }
      }
    }
  `,
  [PostFields],
)

export const Tagged = graphql(
  `
    query Tagged($tag: String!, $after: Cursor) {
      taggedPosts(tag: $tag, first: 20, after: $after) {
        ...PostPage
      }
    }
  `,
  [postPage],
)

export const Public = graphql(
  `
    query Public($after: Cursor) {
      publicPosts(first: 20, after: $after) {
        ...PostPage
      }
    }
  `,
  [postPage],
)

export const Followers = graphql(
  `
    query Followers($handle: String!, $after: Cursor) {
      user(handle: $handle) {
        ...Person
        list: followers(first: 20, after: $after) {
          ...PeoplePage
        }
      }
    }
  `,
  [person, peoplePage],
)

export const Following = graphql(
  `
    query Following($handle: String!, $after: Cursor) {
      user(handle: $handle) {
        ...Person
        list: following(first: 20, after: $after) {
          ...PeoplePage
        }
      }
    }
  `,
  [person, peoplePage],
)

export const Follow = graphql(`mutation Follow($input: UserInput!) { change: follow(input: $input) { user { ...Person } } }`, [person])
export const Unfollow = graphql(`mutation Unfollow($input: UserInput!) { change: unfollow(input: $input) { user { ...Person } } }`, [person])
export const Block = graphql(`mutation Block($input: UserInput!) { change: block(input: $input) { user { ...Person } } }`, [person])
export const Unblock = graphql(`mutation Unblock($input: UserInput!) { change: unblock(input: $input) { user { ...Person } } }`, [person])
export const Mute = graphql(`mutation Mute($input: UserInput!) { change: mute(input: $input) { user { ...Person } } }`, [person])
export const Unmute = graphql(`mutation Unmute($input: UserInput!) { change: unmute(input: $input) { user { ...Person } } }`, [person])
export const AcceptFollower = graphql(`mutation AcceptFollower($input: UserInput!) { change: acceptFollower(input: $input) { user { ...Person } } }`, [person])
export const RemoveFollower = graphql(`mutation RemoveFollower($input: UserInput!) { change: removeFollower(input: $input) { user { ...Person } } }`, [person])
export const RejectFollower = graphql(`mutation RejectFollower($input: UserInput!) { change: rejectFollower(input: $input) { user { ...Person } } }`, [person])
