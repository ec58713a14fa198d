"""Clusters on which programs run: one module a platform, each recorded before it is created.

Place 11 of 13 in ``vispark.migrate``; run by: driver, task, command.
"""

from gpu_worker.commands.deployment.platforms import PLATFORMS

#: A new platform is a module and a line here.
PLATFORMS.update({
    "local": "vispark.migrate.clusters.local",
    "standalone": "vispark.migrate.clusters.standalone",
    "kubernetes": "vispark.migrate.clusters.kubernetes",
    "yarn": "vispark.migrate.clusters.yarn",
})
