from kernelscope.batch.coordinator import run as run
from kernelscope.batch.lake import Lake as Lake
from kernelscope.batch.lake import scan as scan
from kernelscope.batch.manifest import Entry as Entry
from kernelscope.batch.pool import ProcessPool as ProcessPool
from kernelscope.batch.reports import BatchReport as BatchReport
from kernelscope.batch.reports import RankReport as RankReport
from kernelscope.batch.sizing import cores as cores
