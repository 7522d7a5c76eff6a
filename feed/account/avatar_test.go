package account_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/account"
)

func TestAvatarHosts(t *testing.T) {
	t.Parallel()
	some := account.AvatarHosts{"img.example.org", "*.cdn.example", "files.example:8443"}
	for _, host := range append(some, "*") {
		require.True(t, account.IsHost(host), host)
	}
	for address, shown := range map[string]bool{
		"https://img.example.org/a.png": true, "https://IMG.example.org:443/": true, "http://img.example.org:80/": true,
		"https://img.example.org:8443/": false, "https://example.org/": false, "https://img.example.org.evil.example/": false,
		"https://a.cdn.example/": true, "https://a.b.cdn.example/": true, "https://cdn.example/": false, "https://evilcdn.example/": false,
		"https://files.example:8443/a": true, "https://files.example/a": false, "https://img.example.org@evil.example/": false,
	} {
		require.Equal(t, shown, some.Allow(address), address)
		require.True(t, account.AvatarHosts{"*"}.Allow(address), address)
		require.False(t, account.AvatarHosts(nil).Allow(address), address)
	}
	for _, bad := range []string{"", "https://example.org", "example.org/a", "a.*.org", "'self'", "example.org; script-src *", "Example.org"} {
		require.False(t, account.IsHost(bad), bad)
	}
}
