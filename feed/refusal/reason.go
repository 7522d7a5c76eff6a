package refusal

// Reason tells programs what was wrong. An app shows a text of its own for the Name, in its user's
// language. A published name keeps its meaning.
type Reason struct {
	Code Code
	Name string // extensions.reason
	When string // for the documents: when a call is refused for this reason
}

// reasons holds every Reason, in the order below.
var reasons []Reason

func reason(code Code, name, when string) Reason {
	r := Reason{code, name, when}
	reasons = append(reasons, r)
	return r
}

// Reasons returns all reasons, grouped by code.
func Reasons() []Reason { return reasons }

// The caller is not known.
var (
	SignIn           = reason(Unauthenticated, "SIGN_IN", "Nobody is signed in.")
	SessionEnded     = reason(Unauthenticated, "SESSION_ENDED", "The session has ended, or the credential is malformed: log in again.")
	WrongCredentials = reason(Unauthenticated, "WRONG_CREDENTIALS", "Handle or password is wrong.")
	TokenInvalid     = reason(Unauthenticated, "TOKEN_INVALID", "The issuer's token is invalid or has expired.")
	KeyInvalid       = reason(Unauthenticated, "KEY_INVALID", "The API key is invalid or was revoked.")
	NobodyToActFor   = reason(Unauthenticated, "NOBODY_TO_ACT_FOR", "The user to act for does not exist.")
	DownloadEnded    = reason(Unauthenticated, "DOWNLOAD_ENDED", "The download link was used already, or has expired.")
)

// The caller may not do this.
var (
	ScopeMissing    = reason(Forbidden, "SCOPE_MISSING", "The API key lacks the scope.")
	OtherIssuer     = reason(Forbidden, "OTHER_ISSUER", "The API key belongs to one issuer, and the key that it would make or revoke to another.")
	NotByKey        = reason(Forbidden, "NOT_BY_KEY", "No API key may do this, whatever its scopes.")
	RoleMissing     = reason(Forbidden, "ROLE_MISSING", "This takes a higher role.")
	RoleNotBelow    = reason(Forbidden, "ROLE_NOT_BELOW", "The role of the user is not below the caller's.")
	Suspended       = reason(Forbidden, "SUSPENDED", "The account is suspended.")
	SignUpOff       = reason(Forbidden, "SIGN_UP_OFF", "This server makes no accounts with a password.")
	LogInOff        = reason(Forbidden, "LOG_IN_OFF", "Nobody logs in with a password on this server.")
	NoPassword      = reason(Forbidden, "NO_PASSWORD", "The account has no password.")
	WrongPassword   = reason(Forbidden, "WRONG_PASSWORD", "The present password is wrong.")
	TokenNotFresh   = reason(Forbidden, "TOKEN_NOT_FRESH", "This takes a token that was issued within the last ten minutes.")
	TokenWithoutIat = reason(Forbidden, "TOKEN_WITHOUT_IAT", "This takes a token that was issued within the last ten minutes, and the token has no claim iat that says when it was issued.")
	NoSession       = reason(Forbidden, "NO_SESSION", "The caller is an API key, which has no session to end.")
	NotTheAuthor    = reason(Forbidden, "NOT_THE_AUTHOR", "Only its author may change a post.")
	OwnPost         = reason(Forbidden, "OWN_POST", "Moderators do not show their own posts again.")
	HiddenPost      = reason(Forbidden, "HIDDEN_POST", "A moderator hid the post: its text, data and visibility cannot be changed.")
	CannotFollow    = reason(Forbidden, "CANNOT_FOLLOW", "The viewer cannot follow this user.")
	RepliesLimited  = reason(Forbidden, "REPLIES_LIMITED", "The author of the conversation does not let the viewer reply.")
	QuotesLimited   = reason(Forbidden, "QUOTES_LIMITED", "The author of the post does not let the viewer quote it.")
	BlockedRelation = reason(Forbidden, "BLOCKED", "One of the two blocks the other.")
)

// The object does not exist, or the viewer may not see it.
var (
	NoSuchPost    = reason(NotFound, "NO_SUCH_POST", "There is no such post, or the viewer may not see it.")
	NoSuchUser    = reason(NotFound, "NO_SUCH_USER", "There is no such user, or the viewer may not see them.")
	NoSuchRequest = reason(NotFound, "NO_SUCH_REQUEST", "The user has not asked to follow the viewer, or follows the viewer already.")
	NoSuchSession = reason(NotFound, "NO_SUCH_SESSION", "There is no such session of the viewer.")
	NoSuchKey     = reason(NotFound, "NO_SUCH_KEY", "There is no such API key.")
	NoSuchReport  = reason(NotFound, "NO_SUCH_REPORT", "There is no such report, or it is about the moderator who asks.")
)

// The call itself is wrong.
var (
	NotAnID         = reason(BadInput, "NOT_AN_ID", "The text is not an id, or is the id of another kind of object.")
	NotACursor      = reason(BadInput, "NOT_A_CURSOR", "No server of this version made the cursor, or it is of another list.")
	UnknownRanking  = reason(BadInput, "UNKNOWN_RANKING", "This server has no ranking with this name: limits.rankings lists them.")
	NotRanked       = reason(BadInput, "NOT_RANKED", "A ranking was given, but the order is not RANKED.")
	FirstAndLast    = reason(BadInput, "FIRST_AND_LAST", "A page is asked for with first or last, not both.")
	OutOfRange      = reason(BadInput, "OUT_OF_RANGE", "The number is too small or too large.")
	TooMany         = reason(BadInput, "TOO_MANY", "The list, or what it would grow to, is too long.")
	Empty           = reason(BadInput, "EMPTY", "The text is empty, or shows nothing.")
	TooLong         = reason(BadInput, "TOO_LONG", "The text is too long.")
	TooShort        = reason(BadInput, "TOO_SHORT", "The text is too short.")
	NotText         = reason(BadInput, "NOT_TEXT", "The text is not valid Unicode, or has control characters; on one line, also those that change the direction of the text.")
	NotOneLine      = reason(BadInput, "NOT_ONE_LINE", "The text must be on one line.")
	HandleCharacter = reason(BadInput, "HANDLE_CHARACTER", "A handle has letters a to z, digits and _ alone.")
	AmbiguousUser   = reason(BadInput, "AMBIGUOUS_USER", "The name is the number or id of one user and the handle of another.")
	Yourself        = reason(BadInput, "YOURSELF", "The user is the viewer, or both users of a pair are the same.")
	BadScopes       = reason(BadInput, "BAD_SCOPES", "The scopes are missing or unknown.")
	BadHash         = reason(BadInput, "BAD_HASH", "The password hash is too long, malformed, of an unknown kind, or too costly to check.")
	NotAnObject     = reason(BadInput, "NOT_AN_OBJECT", "The data is no JSON object.")
	TooDeep         = reason(BadInput, "TOO_DEEP", "The data has too many levels of objects and lists.")
	NotAURL         = reason(BadInput, "NOT_A_URL", "The address is not one of http or https.")
	NotATag         = reason(BadInput, "NOT_A_TAG", "The text is no tag, with its sign or without.")
	HostNotAllowed  = reason(BadInput, "HOST_NOT_ALLOWED", "This server shows no pictures of that host.")
	RepeatedRow     = reason(BadInput, "REPEATED_ROW", "An earlier row has the same external id.")
	NotATime        = reason(BadInput, "NOT_A_TIME", "The time is not one of RFC 3339 with a zone, such as 2024-12-31T23:59:59Z.")
	TooOld          = reason(BadInput, "TOO_OLD", "The post is older than the oldest possible id.")
	Contradiction   = reason(BadInput, "CONTRADICTION", "The field has no meaning for this post: a reply has the audiences of its root, a repost has no text of its own, and mentions must be in the text.")
	InTheFuture     = reason(BadInput, "IN_THE_FUTURE", "The time is in the future.")
	NotInTheFuture  = reason(BadInput, "NOT_IN_THE_FUTURE", "The time is not in the future.")
)

// The call contradicts the present state.
var (
	HandleTaken     = reason(Conflict, "HANDLE_TAKEN", "Another user has the handle.")
	PasswordChanged = reason(Conflict, "PASSWORD_CHANGED", "The password was changed at the same time.")
	BeingDeleted    = reason(Conflict, "BEING_DELETED", "The account is being deleted.")
	SuspendedKept   = reason(Conflict, "SUSPENDED_KEPT", "A suspended account can only be deleted without a grace period.")
	EditedSince     = reason(Conflict, "EDITED_SINCE", "The post was edited after `ifUnchangedSince`: read what it says now.")
	KeyUsed         = reason(Conflict, "KEY_USED", "The idempotency key was used for a post with another text or other data, for a reply to or a quote of another post, or for a post that has been deleted.")
	TooManyReports  = reason(Conflict, "TOO_MANY_REPORTS", "The user has made too many reports that are not decided yet.")
	ReportClaimed   = reason(Conflict, "REPORT_CLAIMED", "Another moderator has claimed the report.")
	ReportDecided   = reason(Conflict, "REPORT_DECIDED", "The report is decided already.")
	TooManyKeys     = reason(Conflict, "TOO_MANY_KEYS", "There are so many API keys that some must be revoked first.")
	OtherContent    = reason(Conflict, "OTHER_CONTENT", "The external id already names a post with other content.")
	MomentFull      = reason(Conflict, "MOMENT_FULL", "So many posts have this time that no id is free for another.")
)

// The server lacks something now.
var (
	NoIDs        = reason(Unavailable, "NO_IDS", "The server has no number of its own for new ids: it takes no posts and no sign-ups.")
	NoIssuerKeys = reason(Unavailable, "NO_ISSUER_KEYS", "The server has not been able to fetch the keys of the token's issuer yet.")
)
