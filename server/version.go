package server

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"tideline/server/metrics"
)

// The linker sets these in releases and in builds by make.
var version, commit string

// Build says which program this is.
type Build struct {
	Version  string `json:"version"` // such as 0.1.0; development if it is not a release
	Commit   string `json:"commit"`  // with the suffix -modified if there were changes; unknown if it is not recorded
	Go       string `json:"go"`
	Platform string `json:"platform"` // such as linux/amd64
}

// ThisBuild returns the build that the linker set, or else the one that Go records in the binary.
func ThisBuild() Build { return thisBuild() }

var thisBuild = sync.OnceValue(func() Build {
	info, _ := debug.ReadBuildInfo()
	return buildOf(version, commit, info)
})

func buildOf(version, commit string, info *debug.BuildInfo) Build {
	var noted, modified string
	if info != nil {
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				noted = setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				modified = "-modified"
			}
		}
		if version == "" && info.Main.Version != "(devel)" && modified == "" {
			version = info.Main.Version
		}
	}
	if noted != "" {
		noted += modified
	}
	return Build{
		Version: cmp.Or(strings.TrimPrefix(version, "v"), "development"), Commit: cmp.Or(commit, noted, "unknown"),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// String returns the build in one line.
func (b Build) String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s)", b.Version, b.Commit, b.Go, b.Platform)
}

func newMetrics() *metrics.Metrics { return metrics.New(ThisBuild().Version, ThisBuild().Commit) }
