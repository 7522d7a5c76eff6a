package storage_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		dir, database, redis string
		want                 string // part of the error; empty if the configuration is valid
	}{
		"embedded":                {dir: "d"},
		"nothing":                 {want: "data directory: must be set"},
		"servers need no dir":     {database: "postgres://h/db", redis: "redis://h:1"},
		"sqlite needs a dir":      {redis: "redis://h:1", want: "data directory: must be set"},
		"in-process redis too":    {database: "postgres://h/db", want: "data directory: must be set"},
		"postgresql":              {dir: "d", database: "postgresql://u:p@h:5432,h2:5432/db?sslmode=disable"},
		"sqlite url":              {dir: "d", database: "sqlite://some/file.db"},
		"file url":                {dir: "d", database: "file:///abs/file.db?_pragma=cache_size(-1000)"},
		"mysql":                   {dir: "d", database: "mysql://h/db", want: "postgres://, postgresql://, sqlite:// or file:"},
		"a bare path":             {dir: "d", database: "/x.db", want: "postgres://, postgresql://, sqlite:// or file:"},
		"memory":                  {dir: "d", database: "file::memory:", want: "does not last"},
		"memory mode":             {dir: "d", database: "file:x?mode=memory", want: "does not last"},
		"sqlite without a path":   {dir: "d", database: "sqlite://", want: "must name a SQLite file"},
		"sqlite, bad escape":      {dir: "d", database: "sqlite://a%zz", want: "path of the SQLite file"},
		"postgres, bad port":      {dir: "d", database: "postgres://u:s3cret@h:none/db", want: "database URL"},
		"rediss":                  {dir: "d", redis: "rediss://u:p@h:1/2"},
		"unix":                    {dir: "d", redis: "unix:///run/redis.sock"},
		"redis without a port":    {dir: "d", redis: "redis://h"},
		"redis, several":          {dir: "d", redis: "redis://u:p@h1:1,h2:2,[::1]:3?addr=h4:4&addr=h5"},
		"redis, several, no port": {dir: "d", redis: "redis://h1,h2,[::1]"},
		"redis, empty address":    {dir: "d", redis: "redis://h1:1,,h2:2", want: "an address in the list is empty"},
		"redis, bad port":         {dir: "d", redis: "redis://u:s3cret@h:none", want: "Redis URL"},
		"redis, bad database":     {dir: "d", redis: "redis://u:s3cret@h:1/x", want: "invalid database number"},
		"redis, unknown option":   {dir: "d", redis: "redis://h:1?color=red", want: "unexpected option: color"},
		"sentinels":               {dir: "d", redis: "redis://u:p@h1:1,h2,[::1]:3/2?master_name=m&username=u&password=p"},
		"sentinels, one":          {dir: "d", redis: "rediss://h?master_name=m&addr=h2:2"},
		"sentinels, no name":      {dir: "d", redis: "redis://h1:1?master_name=", want: "master_name must name"},
		"sentinels, socket file":  {dir: "d", redis: "unix:///run/s?master_name=m", want: "not by a socket file"},
		"sentinels, option":       {dir: "d", redis: "redis://u:s3cret@h?master_name=m&color=red", want: "unexpected option: color"},
		"redis, its own timeouts": {dir: "d", redis: "redis://h:1?read_timeout=10s&dial_timeout=1s"},
		"redis, no read timeout":  {dir: "d", redis: "redis://h:1?read_timeout=0", want: "read_timeout must be above 0"},
		"redis, no pool timeout":  {dir: "d", redis: "redis://h:1?pool_timeout=-1", want: "pool_timeout must be above 0"},
		"redis, other scheme":     {dir: "d", redis: "http://u:s3cret@h", want: "redis://, rediss:// or unix://"},
		"redis, no scheme":        {dir: "d", redis: "localhost:6379", want: "redis://, rediss:// or unix://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := storage.Config{DataDir: tt.dir, DatabaseURL: tt.database, RedisURL: tt.redis}.Validate()
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}

	t.Run("another sync", func(t *testing.T) {
		err := storage.Config{DataDir: "d", SQLiteSync: "off"}.Validate()
		assert.EqualError(t, err, `SQLiteSync is "off": it must be full or normal`)
	})
	t.Run("all mistakes at once", func(t *testing.T) {
		err := storage.Config{DatabaseURL: "x", RedisURL: "y"}.Validate()
		assert.ErrorContains(t, err, "database URL")
		assert.ErrorContains(t, err, "Redis URL")
	})
}
