package server

import (
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuildIsWhatTheLinkerOrGoSays(t *testing.T) {
	noted := &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}}}
	modified := &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0+dirty"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"},
	}}
	for name, c := range map[string]struct {
		version, commit         string
		info                    *debug.BuildInfo
		wantVersion, wantCommit string
	}{
		"release":              {"v0.1.0", "def", noted, "0.1.0", "def"},
		"installed by go":      {"", "", noted, "0.2.0", "abc"},
		"built with changes":   {"", "", modified, "development", "abc-modified"},
		"built beside nothing": {"", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "development", "unknown"},
		"no notes":             {"", "", nil, "development", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			build := buildOf(c.version, c.commit, c.info)
			require.Equal(t, c.wantVersion, build.Version)
			require.Equal(t, c.wantCommit, build.Commit)
			require.NotEmpty(t, build.Go)
			require.Contains(t, build.Platform, "/")
		})
	}
}

func TestLivezSaysTheVersion(t *testing.T) {
	w := httptest.NewRecorder()
	(&health{}).live(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
	require.Equal(t, ThisBuild().Version+" ("+ThisBuild().Commit+")", w.Header().Get(versionHeader))
}
